"""Backups of the embedded stores of a cluster, taken while the stores are in use, and restores from them."""
