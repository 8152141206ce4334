"""From paths to inodes."""
