"""Damage and lack of room: found, mended, or kept away from the chain."""
