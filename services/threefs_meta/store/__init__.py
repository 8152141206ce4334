"""The metadata store: keys, records, and inodes and entries within a transaction."""
