"""Damage and full disks: detection, repair, and recovery of the targets that they put out of a chain."""
