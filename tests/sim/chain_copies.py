"""Which copies on simulated disks are those of a chain."""

from pathlib import Path

from tests.sim.world import World


def staying_members(world: World) -> set[int]:
    """The targets that are in a chain to stay. One that a move has taken away keeps its copies until they are deleted,
    and nobody asks it for them, nor one whose node has died for good."""
    routing = world.routing()
    if routing is None:
        return set()
    return {
        member.target_id
        for chain in routing.chains.values()
        for member in chain.members
        if not member.leaving and f"s{routing.targets[member.target_id].node_id}" not in world.gone
    }


def target_of(store: Path) -> int:
    """The target whose store it is; 0 if it is set aside."""
    name = next((part for part in reversed(store.parts) if part.startswith("target-")), "")
    digits = name.removeprefix("target-")
    return int(digits) if digits.isdecimal() else 0
