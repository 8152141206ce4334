"""Logs, metrics and the traces of recent events."""
