"""Blocks of tables that are in memory."""

from threefs.kv.rocksdb_store import BLOCK_CACHE, BLOCK_CACHE_BYTES


def drop_cached_blocks() -> None:
    """After a test has changed a file: all stores of a process share the cache, and it outlives a store."""
    BLOCK_CACHE.set_capacity(0)
    BLOCK_CACHE.set_capacity(BLOCK_CACHE_BYTES)
