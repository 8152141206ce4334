"""Nodes: how they register, and which of them live."""
