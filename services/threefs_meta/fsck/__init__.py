"""Checks and repairs of the tables, for `threefs fsck`."""
