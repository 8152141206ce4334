"""What was removed and is kept for a while."""
