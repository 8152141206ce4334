"""Older copies of stores are found, and not used (I15): of the manager, of the meta services, of targets."""
