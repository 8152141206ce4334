"""Calls of the meta service: names, leases, locks, batches."""
