"""Workflows run for real, by act in self-hosted mode, against the fake GitHub; nothing is downloaded."""
