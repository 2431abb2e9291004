"""Seeing the calls of custom Functions and ops in a running process, and writing them down as text."""
