"""Backups of the embedded stores of a cluster, taken while they are in use, and what is made from them."""
