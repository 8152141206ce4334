"""The trash: removed files that are kept for a while."""
