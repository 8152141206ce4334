"""How far the moves are that fill a target, how fast they go on, and since when one does not. Kept in memory: a new
primary counts anew."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from threefs.env.clock import Clock
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, PublicState, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.holds import stands_in
from threefs_manager.chains.moves import NO_TARGET, Move
from threefs_manager.chains.transitions import must_give_way

#: A rate is not told before: heartbeats come once in a while.
_MIN_S = 1.0
T = TypeVar("T")
Report = Callable[[TargetId], pb.TargetReport | None]


@dataclass(frozen=True, slots=True)
class _Begin:
    at: float
    used_bytes: int


@dataclass(frozen=True, slots=True)
class _Stand:
    """What a resync had done at a moment, and has done no more since. What the target takes up is no part of it: that
    changes with each write of a client."""

    source: TargetId
    compared: int
    since: float


class MoveProgress:
    """Of one term as primary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begins: dict[TargetId, _Begin] = {}
        self._stands: dict[TargetId, _Stand] = {}
        self._observed_at = clock.monotonic()

    def observe(self, moves: Iterable[Move], routing: Routing, report: Report) -> None:
        """Call it again and again, so that the beginnings are noticed. Nobody knows what was done in a gap of T: this
        process may have been suspended, or without its store."""
        before, self._observed_at = self._observed_at, self._clock.monotonic()
        if self._observed_at - before >= routing.lease_s:
            self._stands = {}
        begins, stands = {}, {}
        for move in moves:
            found = report(move.added) if is_filling(move, routing) else None
            if found is not None:
                now = _Begin(self._clock.monotonic(), found.used_bytes)
                begins[move.added] = self._begins.get(move.added, now)
                stands[move.added] = self._stand(move, routing, report)
        self._begins, self._stands = begins, stands

    def _stand(self, move: Move, routing: Routing, report: Report) -> _Stand:
        chain = routing.chains[move.chain_id]
        now = _Stand(chain.tail or NO_TARGET, resynced(chain, report), self._clock.monotonic())
        before = self._stands.get(move.added)
        return before if before is not None and dataclasses.replace(now, since=before.since) == before else now

    def stalled_s(self, target: TargetId) -> float:
        """For how long the resync of an added target has done nothing."""
        stand = self._stands.get(target)
        return 0.0 if stand is None else self._clock.monotonic() - stand.since

    def rows(self, moves: Iterable[Move], routing: Routing, report: Report) -> Iterator[pb.MoveProgress]:
        """The moves that fill a target, or wait to: what there is to copy, and what has been copied."""
        for move in moves:
            tail = routing.chains[move.chain_id].tail
            source = report(tail) if move.added and tail is not None else None
            if source is None:
                continue
            filled, begin = report(move.added), self._begins.get(move.added)
            used = filled.used_bytes if filled is not None else 0
            yield pb.MoveProgress(
                chain_id=move.chain_id,
                copied_bytes=min(used, source.used_bytes),
                total_bytes=source.used_bytes,
                bytes_per_s=self._rate(begin, used) if begin is not None else 0,
            )

    def _rate(self, begin: _Begin, used_bytes: int) -> int:
        elapsed_s = self._clock.monotonic() - begin.at
        return 0 if elapsed_s < _MIN_S else max(0, round((used_bytes - begin.used_bytes) / elapsed_s))


def resynced(chain: Chain, report: Report) -> int:
    """What the tail of a chain has done in resyncs of others: it stands still while none proceeds."""
    source = report(chain.tail or NO_TARGET)
    return 0 if source is None else int(source.sync_progress)


def is_filling(move: Move, routing: Routing) -> bool:
    return bool(move.added) and routing.chains[move.chain_id].state(move.added) is PublicState.SYNCING


def lasting(
    known: Mapping[T, tuple[float, float]], found: Iterable[T], now: float, gap_s: float
) -> dict[T, tuple[float, float]]:
    """Since when each of those that were found is so, and when it was found last. After a longer gap it begins anew: in
    that time this process may have been suspended, or without its store."""
    kept = {each: times for each, times in known.items() if now - times[1] < gap_s}
    return kept | {each: (kept.get(each, (now, now))[0], now) for each in found}


def stuck_chains(chain_ids: Iterable[ChainId], routing: Routing) -> list[ChainId]:
    """Those with a member that is to leave, and serves because too few others do. One that an administrator holds is
    waited for: the next plan would take it away in place of the one that leaves."""
    leaving = [chain for chain in map(routing.chains.__getitem__, chain_ids) if chain.leaving in chain.serving]
    minimums = routing.minimums() if leaving else {}
    return [
        chain.chain_id
        for chain in leaving
        if chain.leaving is not None and not must_give_way(chain, minimums.get(chain.chain_id, 1))
        if not stands_in(chain.leaving, chain, routing)
    ]
