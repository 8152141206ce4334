"""Asking the last target that writes reach which version of a chunk is committed (rule R1).

That is the syncing one, if there is one. It may be made a serving one, and show what it has committed, before the one
ahead of it hears of either: of the commit, and of the new chain version.
"""

from collections.abc import Callable

from threefs.env.clock import Clock
from threefs.errors import ChainChanged, Unavailable
from threefs.ids import ChunkId
from threefs.routing import Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import QUERY_VERSION
from threefs.wire import storage_pb2 as pb
from threefs_storage.targets import Target

_ATTEMPT_S = 5.0


class VersionQuery:
    def __init__(self, peers: ConnectionPool, routing: Callable[[], Routing], *, clock: Clock) -> None:
        self._peers = peers
        self._routing = routing
        self._clock = clock

    async def committed_version(self, target: Target, chunk: ChunkId, deadline: float) -> int:
        """0 if the chunk never was. Raises Unavailable, ChainChanged and what that target refuses with."""
        last = target.chain.last
        if last is None:
            raise ChainChanged(f"chain {target.chain.chain_id} has no serving target")
        address = self._routing().address_of(last)
        if not address:
            raise Unavailable(f"the storage process of target {last} has not registered yet")
        request = pb.QueryVersionRequest(
            target=last, chain_version=target.chain.version, inode=[chunk.inode], index=[chunk.number]
        )
        left_s = max(0.001, min(_ATTEMPT_S, deadline - self._clock.monotonic()))
        call = self._peers.call(address, QUERY_VERSION, request, timeout_s=left_s)
        reply = await target.cancel_on_chain_change(call)
        return reply.version[0]
