"""Talking to GitHub: where a job runs, what was reported, the comment. Reaches neither torch nor checked code."""
