"""Bugs on purpose, by the part of the system whose rule they break."""

from tests.sim.planted import (
    apportioned,
    damage,
    durability,
    grants,
    identity,
    links,
    membership,
    metadata,
    mounts,
    operation,
    overlays,
    peers,
    replication,
    stores,
    traffic,
    upkeep,
    wire,
)
from tests.sim.planted.registry import PLANTED, TESTED

__all__ = [
    "PLANTED",
    "TESTED",
    "apportioned",
    "damage",
    "durability",
    "grants",
    "identity",
    "links",
    "membership",
    "metadata",
    "mounts",
    "operation",
    "overlays",
    "peers",
    "replication",
    "stores",
    "traffic",
    "upkeep",
    "wire",
]
