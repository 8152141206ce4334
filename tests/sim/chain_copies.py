"""Which copies on simulated disks are those of a chain."""

from pathlib import Path

from tests.sim.world import World


def staying_members(world: World) -> set[int]:
    """The targets that are in a chain to stay. One that a move has taken away keeps its copies until they are deleted,
    and nobody asks it for them."""
    routing = world.routing()
    chains = routing.chains.values() if routing is not None else ()
    return {member.target_id for chain in chains for member in chain.members if not member.leaving}


def target_of(store: Path) -> int:
    """The target whose store it is; 0 if it is set aside."""
    name = next((part for part in reversed(store.parts) if part.startswith("target-")), "")
    digits = name.removeprefix("target-")
    return int(digits) if digits.isdecimal() else 0
