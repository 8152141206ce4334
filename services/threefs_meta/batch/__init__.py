"""Many changes in one transaction."""
