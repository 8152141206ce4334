"""Logs, metrics and the story of a chunk or chain."""
