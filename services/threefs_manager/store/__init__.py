"""The manager's own store, and what is done after it was restored from a backup."""
