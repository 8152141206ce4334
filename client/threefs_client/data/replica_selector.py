"""Selects the replica for a read: at the storage process with the fewest outstanding bytes of this client, else in
turn."""

from collections.abc import Container, Sequence

from threefs.errors import InvalidArgument, NotServing
from threefs.ids import ChainId, TargetId
from threefs.layout import FileLayout
from threefs.routing import Routing

#: A process that failed counts as having this many bytes outstanding for a while, so other replicas are chosen first.
_PENALTY = 1 << 50
_PENALTY_S = 1.0
_INFINITE = float("inf")


class ReplicaEndpoint:
    """One storage process as this client sees it."""

    __slots__ = ("address", "load", "open_plan")

    def __init__(self, address: str) -> None:
        self.address = address
        # Bytes that are requested and not answered yet, plus one per row ever requested, which makes equal ones take
        # turns.
        self.load = 0
        self.open_plan: object = None  # used by the planner within one step


#: (endpoint, target, chain version)
Replica = tuple[ReplicaEndpoint, int, int]
#: The numbers of a file that the planner needs, flat for speed: (inode, bits of chunk size, chunk bytes, stripe,
#: replicas of each place of the stripe; none where no target serves)
Resolved = tuple[int, int, int, int, tuple[tuple[Replica, ...], ...]]


class ReplicaSelector:
    """The replicas of one routing version."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self._endpoints: dict[str, ReplicaEndpoint] = {}
        self._chains: dict[ChainId, tuple[Replica, ...]] = {}
        self._penalties: list[tuple[float, ReplicaEndpoint]] = []

    def resolve(self, inode: int, layout: FileLayout) -> Resolved:
        """Raises NotServing when the routing does not have the table of the file yet."""
        table = self.routing.tables.get(layout.table_id, ())
        replicas = tuple(self._replicas(chain) for chain in layout.chains(table))
        return inode, layout.chunk_bytes.bit_length() - 1, layout.chunk_bytes, layout.stripe, replicas

    def _replicas(self, chain_id: ChainId) -> tuple[Replica, ...]:
        found = self._chains.get(chain_id)
        if found is None:
            chain = self.routing.chains.get(chain_id)
            if chain is None:
                raise InvalidArgument(f"chain {chain_id} is not in the routing")
            found = tuple(
                (self._endpoint(address), target, chain.version)
                for target in chain.serving
                if (address := self.routing.address_of(target))
            )
            self._chains[chain_id] = found
        return found

    def has_other_replica(self, target: int, silent: Container[int], damaged: Container[int]) -> bool:
        """Whether what a target keeps, or has kept, may be read at another one, which has neither said that its copy is
        damaged nor been silent. `silent` are those that were left, or did not answer in time."""
        known = self.routing.targets.get(TargetId(target))
        if known is None:  # its chain goes on without it
            return True
        serving = [replica[1] for replica in self._replicas(known.chain_id)]
        others = [other for other in serving if other != target]
        if target not in serving:
            return bool(others)
        return any(other not in silent and other not in damaged for other in others)

    def not_serving(self, layout: FileLayout, number: int) -> NotServing:
        """The error of a chunk whose chain has no replicas here. Other chunks of its file may have some."""
        chain = layout.chain_of(self.routing.tables[layout.table_id], number)
        return NotServing(f"{self.routing.shown_chain(chain)} has no serving target")

    def _endpoint(self, address: str) -> ReplicaEndpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = ReplicaEndpoint(address)
        return endpoint

    def penalize(self, endpoint: ReplicaEndpoint, now: float) -> None:
        """The process did not answer: prefer others for a while."""
        if all(other is not endpoint for _, other in self._penalties):
            endpoint.load += _PENALTY
            self._penalties.append((now + _PENALTY_S, endpoint))

    def clear_penalty(self, now: float) -> None:
        while self._penalties and self._penalties[0][0] <= now:
            self._penalties.pop(0)[1].load -= _PENALTY


def choose(replicas: Sequence[Replica], tried: Container[int] = ()) -> Replica | None:
    """The least loaded of the targets that were not tried yet. The planner calls this for each row: it is plain."""
    best: Replica | None = None
    lowest: float = _INFINITE
    for replica in replicas:
        load = replica[0].load
        if load < lowest and (not tried or replica[1] not in tried):
            lowest = load
            best = replica
    return best
