"""What lies in the metadata store: keys, records, inodes and entries within a transaction."""
