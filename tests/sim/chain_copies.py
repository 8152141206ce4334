"""Which copies on simulated disks are those of a chain."""

from pathlib import Path

from tests.sim.world import World


def staying_members(world: World) -> set[int]:
    """The targets that are in a chain to stay. One that a move has taken away keeps its copies until they are deleted,
    and nobody asks it for them, nor one whose node has died for good. A chain that has more members than it should may
    lose any of them before it is known that the copies of others are not good any more."""
    routing = world.routing()
    if routing is None:
        return set()
    going = {f"s{node.node_id}" for node in routing.nodes.values() if node.draining} | world.gone
    return {
        member.target_id
        for table_id, chain_ids in routing.tables.items()
        for chain in map(routing.chains.__getitem__, chain_ids)
        for member in chain.members
        if not member.leaving
        and len(chain.members) <= routing.replicas[table_id]
        and f"s{routing.targets[member.target_id].node_id}" not in going
    }


def target_of(store: Path) -> int:
    """The target whose store it is; 0 if it is set aside."""
    name = next((part for part in reversed(store.parts) if part.startswith("target-")), "")
    digits = name.removeprefix("target-")
    return int(digits) if digits.isdecimal() else 0
