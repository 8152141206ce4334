"""Traffic classes and background work that yields: nothing is lost by these bugs, but somebody waits for ever."""

from typing import Any

from threefs_storage.scheduling import background_scheduler
from threefs_storage.scheduling.background_pace import BackgroundPace
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler

from tests.sim.planted.registry import plant_for, put
from threefs.rpc import server_connection
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.traffic_class import TrafficClass

_PACE = "unit/services/threefs_storage/scheduling/test_background_pace.py"
_SCHEDULER = "unit/services/threefs_storage/scheduling/test_background_scheduler.py"
_CLASSES = "cluster/services/threefs_storage/scheduling/test_background_scheduler.py"


@plant_for(f"{_PACE}::test_it_is_never_starved")
def background_starves() -> None:
    """Background work gets its share only while that is more than its minimum, so a resync may never end."""
    put(BackgroundPace, "pause_s", lambda self, took_s, size, in_flight: took_s * in_flight / self._limits.share)


@plant_for(f"{_PACE}::test_it_takes_no_more_than_its_share_of_the_time")
def background_does_not_yield() -> None:
    put(BackgroundPace, "pause_s", lambda self, took_s, size, in_flight: 0.0)


@plant_for(f"{_CLASSES}::test_a_resync_has_a_marked_connection_of_its_own_and_counts_as_background")
def background_counts_as_data() -> None:
    """The server does not see that a connection is for background work."""
    put(server_connection, "of_number", lambda number: TrafficClass.DATA)


@plant_for(
    "unit/threefs/rpc/test_traffic_counters.py::test_each_class_has_a_connection_of_its_own_and_is_counted_apart"
)
def classes_share_a_connection() -> None:
    """What is in the way of one class is in the way of all."""
    call = ConnectionPool.call

    async def as_data(self: ConnectionPool, *args: Any, **more: Any) -> Any:
        return await call(self, *args, **(more | {"traffic": TrafficClass.DATA}))

    put(ConnectionPool, "call", as_data)


@plant_for(f"{_SCHEDULER}::test_pieces_for_peers_do_not_wait_for_the_own_ones")
def peers_wait_for_own_turns() -> None:
    """Two processes that resync each other's targets wait for each other."""
    init = BackgroundScheduler.__init__

    def one_lane(self: BackgroundScheduler, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self._own = self._for_peers = background_scheduler._Lane(
            background_scheduler.WEIGHTS | {background_scheduler.Work.FOR_PEERS: 8},
            self._own._foreground,
            self._own._pace._limits,
            self._clock,
        )

    put(BackgroundScheduler, "__init__", one_lane)


@plant_for(f"{_SCHEDULER}::test_a_piece_that_is_cancelled_when_its_turn_comes_gives_it_back")
def cancelled_pieces_keep_their_turns() -> None:
    """A chain change cancels a resync whose turn has come, and no background work runs any more."""

    async def enter(self: Any, work: Any, size: int, patience_s: float | None) -> int:
        piece = background_scheduler._Piece(size)
        self._queue.push(work, piece, size)
        self._start_pieces()
        return await piece.turn

    put(background_scheduler._Lane, "enter", enter)
