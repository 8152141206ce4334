"""The chunk engine: the chunks of one target, on one directory of a local disk."""
