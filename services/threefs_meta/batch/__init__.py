"""Many changes of one client in one transaction."""
