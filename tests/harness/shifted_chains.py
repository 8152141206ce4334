"""What plans of moves do to chains."""

from collections.abc import Iterable, Mapping, Sequence

from threefs_manager.placement.rebalance import Shift

from threefs.ids import ChainId, NodeId


def shifted(chains: Mapping[ChainId, Sequence[NodeId]], shifts: Iterable[Shift]) -> dict[ChainId, list[NodeId]]:
    """The disks of each chain after these shifts."""
    after = {chain_id: list(members) for chain_id, members in chains.items()}
    for shift in shifts:
        members = after[shift.chain_id]
        members[members.index(shift.source)] = shift.destination
    return after
