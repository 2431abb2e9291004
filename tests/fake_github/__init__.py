"""A stateful fake of GitHub over real HTTP, held to GitHub's own description of its API."""
