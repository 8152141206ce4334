"""Checking and mending of the tables, for `threefs fsck`."""
