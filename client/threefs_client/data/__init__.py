"""Bytes: reads and writes of open files through the chains."""
