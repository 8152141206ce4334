"""The blocking classes, which delegate to the asyncio ones."""
