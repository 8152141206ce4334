"""The one place that decides when background work runs: resync, repair, folds of overlays, the scrubber.

Every piece of such work takes a turn here. Kinds that wait together are served by weight (`fair_queue`), and all of
them yield to calls of clients (`background_pace`). Work that other processes send here has a lane of its own: two
processes that send each other chunks would otherwise wait for each other's turns to end.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.rpc.traffic_class import TrafficClass
from threefs.rpc.traffic_counters import TrafficCounters
from threefs_storage.scheduling.adjustable_pause import pause
from threefs_storage.scheduling.background_pace import PIECE_BYTES, BackgroundPace, Foreground, PaceLimits
from threefs_storage.scheduling.fair_queue import FairQueue


class Work(enum.Enum):
    """The kinds of background work."""

    RESYNC = "resync"
    REPAIR = "repair"
    FOLD = "fold"
    SCRUB = "scrub"
    FOR_PEERS = "for_peers"  # chunks that a resync brings here, and copies for other members


#: A chain without all its replicas is in danger; scrubbing has weeks.
WEIGHTS = {Work.REPAIR: 8, Work.RESYNC: 8, Work.FOLD: 4, Work.SCRUB: 1}
_QUANTUM_BYTES = 64 << 10
_MIN_WAIT_S = 0.001


@dataclass(slots=True)
class WorkCounters:
    pieces: int = 0
    bytes: int = 0
    waited_seconds: float = 0.0


def no_foreground() -> Foreground:
    """Of a process without clients."""
    return Foreground(0, float("-inf"))


def foreground_of(traffic: Mapping[TrafficClass, TrafficCounters]) -> Foreground:
    """The calls of a server that somebody waits for."""
    counters = [counted for each, counted in traffic.items() if each is not TrafficClass.BACKGROUND]
    return Foreground(sum(each.in_flight for each in counters), max(each.last_call_s for each in counters))


class BackgroundScheduler:
    """One for each process."""

    def __init__(
        self,
        foreground: Callable[[], Foreground] = no_foreground,
        limits: PaceLimits | None = None,
        *,
        clock: Clock,
        rates: Mapping[Work, int] | None = None,
    ) -> None:
        """`rates` are bytes per second that a kind never exceeds."""
        limits = limits or PaceLimits()
        self.counters = {work: WorkCounters() for work in Work}
        self._clock = clock
        self._rates = dict(rates or {})
        self._last: dict[Work, tuple[float, int]] = {}  # of kinds with a rate: when the last piece began, its bytes
        self._own = _Lane(WEIGHTS, foreground, limits, clock)
        self._for_peers = _Lane({Work.FOR_PEERS: 1}, foreground, limits, clock)

    def set_limits(self, limits: PaceLimits) -> None:
        for lane in (self._own, self._for_peers):
            lane.set_limits(limits)

    def set_rate(self, work: Work, bytes_per_s: int) -> None:
        """That the kind never exceeds from now on."""
        self._rates[work] = bytes_per_s

    def _rate_pause_s(self, work: Work) -> float:
        """From the begin of the last piece to that of the next one."""
        return self._last.get(work, (0.0, 0))[1] / self._rates[work]

    @asynccontextmanager
    async def turn(self, work: Work, size: int, patience_s: float | None = None) -> AsyncIterator[None]:
        """Do a piece of work of about that many bytes when it is its turn, or after `patience_s`. A piece must not take
        another turn, and the caller must hold no lock that a call of a client may want."""
        asked = self._clock.monotonic()
        if work in self._rates:
            await pause(self._clock, self._last.get(work, (asked, 0))[0], lambda: self._rate_pause_s(work))
        lane = self._for_peers if work is Work.FOR_PEERS else self._own
        burst = await lane.enter(work, size, patience_s)
        began = self._clock.monotonic()
        counters = self.counters[work]
        counters.pieces += 1
        counters.bytes += size
        counters.waited_seconds += began - asked
        if work in self._rates:
            self._last[work] = began, size
        try:
            yield
        finally:
            lane.leave(burst)


class _Lane:
    """Pieces that wait for their turn, and those that run."""

    def __init__(
        self, weights: Mapping[Work, int], foreground: Callable[[], Foreground], limits: PaceLimits, clock: Clock
    ) -> None:
        self._pace = BackgroundPace(limits)
        self._foreground = foreground
        self._clock = clock
        self._queue: FairQueue[Work, _Piece] = FairQueue(weights, _QUANTUM_BYTES)
        self._timer: asyncio.TimerHandle | None = None

    def set_limits(self, limits: PaceLimits) -> None:
        self._pace.set_limits(limits)

    async def enter(self, work: Work, size: int, patience_s: float | None) -> int:
        """Return when the piece may run: the number of its burst."""
        piece = _Piece(size)
        self._queue.push(work, piece, max(size, PIECE_BYTES))
        self._start_pieces()
        if patience_s is not None and not piece.popped:
            impatience = asyncio.get_running_loop().call_later(patience_s, self._hurry, work, piece)
            piece.turn.add_done_callback(lambda _: impatience.cancel())
        try:
            return await piece.turn
        except asyncio.CancelledError:
            if not piece.popped:
                self._queue.withdraw(work, piece)
            elif not piece.turn.cancelled():
                self.leave(piece.turn.result())  # its turn came in the same moment
            raise

    def leave(self, burst: int) -> None:
        """A piece of that burst has ended."""
        self._pace.end(self._clock.monotonic(), burst, self._foreground())
        self._start_pieces()

    def _hurry(self, work: Work, piece: "_Piece") -> None:
        if piece.popped:
            return  # its turn came in the same moment
        self._queue.withdraw(work, piece)
        self._start(piece)

    def _start_pieces(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while len(self._queue):
            wait_s = self._pace.wait_s(self._clock.monotonic(), self._foreground())
            if wait_s is None:  # the end of a piece comes here again
                return
            if wait_s > 0:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(max(wait_s, _MIN_WAIT_S), self._start_pieces)
                return
            piece = self._queue.pop()
            assert piece is not None, "a queue with pieces has a next one"
            self._start(piece)

    def _start(self, piece: "_Piece") -> None:
        piece.popped = True
        if not piece.turn.done():  # else its caller was cancelled
            piece.turn.set_result(self._pace.begin(self._clock.monotonic(), piece.size, self._foreground()))


class _Piece:
    """A piece that waits for its turn."""

    __slots__ = ("popped", "size", "turn")

    def __init__(self, size: int) -> None:
        self.size = size
        self.popped = False  # it is not in the queue any more
        self.turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
