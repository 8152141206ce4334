"""Asking the last target that writes reach which version of a chunk is committed (R1).

That is the syncing target, if there is one. The manager may make it a serving target, and it may show what it has
committed, before the target ahead of it hears of the commit or of the new chain version.
"""

from threefs.env.clock import Clock
from threefs.errors import ChainChanged
from threefs.ids import ChunkId
from threefs.rpc.methods import QUERY_VERSION
from threefs.wire import storage_pb2 as pb
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_ATTEMPT_S = 5.0


class VersionQuery:
    def __init__(self, peers: PeerTargets, *, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock

    async def committed_version(self, target: Target, chunk: ChunkId, deadline: float) -> int:
        """The committed version; 0 if there is no record. Raises Unavailable, ChainChanged and what the last target
        refuses with."""
        last = target.chain.last
        if last is None:
            raise ChainChanged(f"chain {target.chain.chain_id} has no serving target")
        request = pb.QueryVersionRequest(
            target=last, chain_version=target.chain.version, inode=[chunk.inode], index=[chunk.number]
        )
        timeout_s = max(0.001, min(_ATTEMPT_S, deadline - self._clock.monotonic()))
        reply = await target.cancel_on_chain_change(self._peers.call(last, QUERY_VERSION, request, timeout_s=timeout_s))
        return reply.version[0]
