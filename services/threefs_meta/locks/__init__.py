"""Advisory locks of files: conflicts, deadlock detection, and how the locks of a dead client end (fencing)."""
