"""The meta service: inodes and directory entries in a transactional key-value store."""
