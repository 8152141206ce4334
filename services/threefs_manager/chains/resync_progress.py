"""Progress of resyncs: finds a syncing target that makes none, so that a waiting target may sync instead.

The target that brings its successor up to date counts its work (`TargetReport.sync_progress`). The counts are kept in
memory only, so a new primary gives every resync the whole time again.

A syncing target that has stalled is not put out at once: targets that do not know the change yet may still ask it which
version is committed (R1). It gets no lease any more, and leaves the chain when its last lease has ended, as if it were
silent (R9). Since it lives, it then waits behind the others.
"""

from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.transitions import Observed

#: A resync has stalled when it has made no progress for this many times T.
STALLED_LEASES = 10


@dataclass(slots=True)
class _Resync:
    chain_version: int
    progress: int
    since: float


class ResyncProgress:
    """The resyncs that are under way. Time counts only for chains that are evaluated again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resyncs: dict[ChainId, _Resync] = {}

    def stalled_target(
        self, chain: Chain, observed: Observed, source: pb.TargetReport | None, lease_s: float
    ) -> TargetId | None:
        """The syncing target of the chain, if it has stalled and another one could sync instead; else None.

        `source` is the newest report of its predecessor.
        """
        syncing = next((member.target_id for member in chain.members if member.state is PublicState.SYNCING), None)
        if syncing is None:
            self._resyncs.pop(chain.chain_id, None)
            return None
        now = self._clock.monotonic()
        progress = source.sync_progress if source is not None else 0
        seen = self._resyncs.get(chain.chain_id)
        if seen is None or (seen.chain_version, seen.progress) != (chain.version, progress):
            seen = self._resyncs[chain.chain_id] = _Resync(chain.version, progress, now)
        if now - seen.since < STALLED_LEASES * lease_s or observed.get(syncing) is LocalState.UPTODATE:
            return None
        return syncing if any(_could_sync(member, observed) for member in chain.members) else None


def _could_sync(member: ChainMember, observed: Observed) -> bool:
    lives = observed.get(member.target_id) in (LocalState.UPTODATE, LocalState.ONLINE)
    return lives and member.state in (PublicState.WAITING, PublicState.OFFLINE)
