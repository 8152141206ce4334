"""Replication along a chain: writes, version queries, resync, what is left pending, tombstones."""
