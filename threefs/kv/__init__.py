"""The transactional key-value port and its engines."""
