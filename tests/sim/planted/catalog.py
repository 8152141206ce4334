"""Bugs on purpose, by the part of the system whose rule they break."""

from tests.sim.planted import apportioned, durability, membership, metadata, replication, upkeep, wire
from tests.sim.planted.registry import PLANTED

__all__ = ["PLANTED", "apportioned", "durability", "membership", "metadata", "replication", "upkeep", "wire"]
