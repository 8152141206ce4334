"""Names and attributes that the mount and the kernel cache, and their invalidation."""
