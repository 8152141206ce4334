"""The blocking faces of the asyncio client."""
