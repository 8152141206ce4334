"""Which syncing targets make no progress, so that another one that waits may have its turn.

The target that brings its successor up to date counts what it gets done (`TargetReport.sync_progress`). In memory only:
a new primary gives everyone all the time again.

Who has to give way is not put out at once: it may still be asked which version is committed, by targets that have not
heard of the change (R1). It gets no lease any more, and leaves the chain when its last one has ended, as if it were
silent (R9). It lives, so it waits then, behind the others.
"""

from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState
from threefs.wire import manager_pb2 as pb
from threefs_manager.transitions import Observed

#: A resync that gets nothing done for so many times T has stalled.
STALLED_LEASES = 10


@dataclass(slots=True)
class _Resync:
    chain_version: int
    progress: int
    since: float


class ResyncProgress:
    """To be shown each chain now and then: what nobody looked at has not stalled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resyncs: dict[ChainId, _Resync] = {}

    def stalled_target(
        self, chain: Chain, observed: Observed, source: pb.TargetReport | None, lease_s: float
    ) -> TargetId | None:
        """The syncing target, if nothing has happened for too long and another one could be brought up to date instead.

        `source`: what its predecessor has said last.
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
