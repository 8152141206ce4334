"""From paths to inodes, for one place or many at once."""
