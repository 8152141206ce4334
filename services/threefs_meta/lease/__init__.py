"""Leases of clients and what they hold: write sessions, delegations of directories; the clock that counts leases."""
