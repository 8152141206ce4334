"""Quotas: what inodes cost, which account pays, the sums, and the limits."""
