"""Streams: file objects read ahead and write behind."""

from typing import Any

from threefs_client.async_file import AsyncFile
from threefs_client.data.dirty_extents import DirtyExtents
from threefs_client.data.read_ahead import ReadAhead, ReadAheadBudget
from threefs_client.data.read_stream import ReadStream
from threefs_client.data.write_behind import WriteBehind
from threefs_client.data.write_buffer import WriteBuffer

from tests.sim.planted.registry import plant_for, put

_MODEL = "contract/test_streams.py::test_a_stream_behaves_like_bytes_in_memory"
_STALE = "contract/test_streams.py::test_what_was_in_memory_is_not_shown_after_a_change"
_BEHIND = "unit/client/threefs_client/data/test_write_behind.py"


@plant_for(
    "contract/test_streams.py::test_an_error_in_the_background_is_raised_by_the_next_write_once_and_nothing_is_lost"
)
def failed_bytes_are_dropped() -> None:
    """A flush that succeeds says nothing of the bytes that failed before it."""
    put(DirtyExtents, "put_back", lambda self, extents: 0)


@plant_for("unit/client/threefs_client/data/test_dirty_extents.py::test_what_is_put_back_lies_below_what_came_later")
def failed_bytes_lie_over_later_ones() -> None:
    """Bytes that are sent again overwrite what was written since."""

    def above(self: DirtyExtents, extents: list[Any]) -> int:
        size = self.size + sum(len(data) for _, data in extents)
        for offset, data in extents:
            self.add(offset, bytes(data))
        return size - self.size

    put(DirtyExtents, "put_back", above)


@plant_for("unit/client/threefs_client/data/test_dirty_extents.py::test_what_is_put_back_lies_below_what_came_later")
def overwritten_bytes_keep_their_share_of_the_budget() -> None:
    """Bytes that failed, and were written again since, are never given back to the budget."""
    put_back = DirtyExtents.put_back

    def forgetting(self: DirtyExtents, extents: list[Any]) -> int:
        put_back(self, extents)
        return 0

    put(DirtyExtents, "put_back", forgetting)


@plant_for(f"{_BEHIND}::test_chunks_that_writers_fill_in_turns_are_sent_once")
def chunks_being_filled_are_sent() -> None:
    """Each replica writes the chunks that several writers fill in turns again and again."""
    put(DirtyExtents, "drain_ready", DirtyExtents.drain)


@plant_for(f"{_BEHIND}::test_a_slow_cluster_does_not_make_it_hold_more")
def write_behind_has_no_bound() -> None:
    """A slow cluster makes a writer hold everything."""
    put(WriteBehind, "has_room", lambda self, size: True)


@plant_for(f"{_BEHIND}::test_pieces_are_bounded_and_more_of_a_chunk_than_fit_into_one_deadline_arrive")
def all_pieces_have_one_deadline() -> None:
    """Small writes that gathered while storage was slow are lost."""
    put(WriteBehind, "_parts", lambda self, extents: [extents])


@plant_for(_MODEL)
def reads_pass_the_writes_before_them() -> None:
    """A read does not see what is still being sent."""
    put(WriteBehind, "is_idle", property(lambda self: True))


@plant_for(f"{_STALE}[write]")
def writes_leave_what_was_read_ahead() -> None:
    """A program reads what was there before its own write."""
    put(ReadAhead, "clear", lambda self: self._window.clear())


@plant_for(
    "contract/test_streams.py::test_an_error_in_the_background_is_raised_by_the_next_write_once_and_nothing_is_lost"
)
def background_error_waits_for_the_flush() -> None:
    """A program writes on for hours after the cluster has refused its bytes."""
    put(AsyncFile, "_raise_background_error", lambda self: None)


@plant_for(
    "unit/client/threefs_client/data/test_read_ahead.py::test_what_is_read_ahead_of_all_files_together_is_bounded"
)
def read_ahead_has_no_bound() -> None:
    """Every open file of a program reads its whole window ahead."""
    take = ReadAheadBudget.try_take

    def taking(self: ReadAheadBudget, size: int) -> bool:
        take(self, size)
        return True

    put(ReadAheadBudget, "try_take", taking)


@plant_for(f"{_STALE}[truncate]")
def cut_lines_outlive_a_change() -> None:
    """A program that reads line after line gets lines from before its own truncate."""
    put(ReadStream, "clear", lambda self: self._read_ahead.clear())


@plant_for(_MODEL)
def gathered_bytes_are_not_overlaid() -> None:
    """A read of the bytes that were written last returns what is stored."""
    put(WriteBuffer, "copies_of", lambda self, offset, length: [])


@plant_for("contract/test_streams.py::test_a_read_of_what_was_written_sends_nothing")
def bytes_in_flight_are_not_overlaid() -> None:
    """A read that overtakes a write returns what was stored before."""
    put(WriteBehind, "extents_of", lambda self, offset, length: self._extents.copies_of(offset, length))
