"""Chains that have a member on a host of the simulated cluster, and the hosts of a chain."""

from threefs.ids import ChainId, TargetId
from threefs.routing import PublicState, Routing


def host_chains(routing: Routing | None, host: str, *states: PublicState) -> list[ChainId]:
    """Those that have a member there, in one of these states if any is named."""
    if routing is None:
        return []
    return [
        chain.chain_id
        for chain in routing.chains.values()
        for member in chain.members
        if _host_of(routing, member.target_id) == host and (not states or member.state in states)
    ]


def host_chains_to_spare(routing: Routing | None, host: str) -> list[ChainId]:
    """Those that take writes also while the member there does not serve: they have more members than a write needs."""
    if routing is None:
        return []
    minimums = routing.minimums()
    return [
        chain for chain in host_chains(routing, host) if len(routing.chains[chain].members) > minimums.get(chain, 1)
    ]


def chain_hosts(routing: Routing | None, chain: ChainId) -> set[str]:
    """Those that have a member of the chain."""
    found = routing.chains.get(chain) if routing is not None else None
    return {_host_of(routing, member.target_id) for member in found.members} if routing and found else set()


def _host_of(routing: Routing, target: TargetId) -> str:
    return f"s{routing.targets[target].node_id}"
