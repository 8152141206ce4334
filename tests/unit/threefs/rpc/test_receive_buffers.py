from collections import deque

from threefs.rpc.frames import PROBE_BYTES
from threefs.rpc.receive_buffers import BodyBudget, advance

KIB = 1 << 10


def test_views_are_filled_from_the_front_and_what_is_left_went_behind_them() -> None:
    wanted = deque(memoryview(bytearray(size)) for size in (3, 4))
    assert advance(wanted, 2) == 0 and [len(view) for view in wanted] == [1, 4]
    assert advance(wanted, 3) == 0 and [len(view) for view in wanted] == [2]
    assert advance(wanted, 7) == 5 and not wanted


def test_a_body_without_room_waits_and_one_that_is_too_large_goes_alone() -> None:
    asked: list[int] = []
    room = BodyBudget(100 * KIB, lambda: asked.append(room.bytes))
    assert room.take(60 * KIB) and not room.take(41 * KIB) and asked == [60 * KIB]
    assert room.take(40 * KIB)
    room.give(60 * KIB)
    room.give(40 * KIB)
    assert room.take(1000 * KIB) and not room.take(PROBE_BYTES + 1)
    room.give(1000 * KIB)
    assert not room.bytes and asked == [60 * KIB, 1000 * KIB]


def test_a_small_body_always_has_room() -> None:
    room = BodyBudget(100 * KIB)
    assert room.take(100 * KIB) and room.take(PROBE_BYTES) and room.bytes == 100 * KIB + PROBE_BYTES
    assert not room.take(PROBE_BYTES + 1)


def test_large_bodies_leave_room_for_those_of_ordinary_requests() -> None:
    """16 peers that each sent 8 MiB slowly had all the room: others waited for seconds."""
    room = BodyBudget(128 << 20)
    begun = 0
    while room.take(8 << 20):
        begun += 1
    assert begun == 12 and room.take(30 * KIB) and room.take(256 * KIB)


def test_small_bodies_take_no_room_from_large_ones_within_their_share() -> None:
    room = BodyBudget(128 << 20)
    for _ in range(128):
        assert room.take(256 * KIB)
    assert [room.take(8 << 20) for _ in range(13)] == [True] * 12 + [False]
    room.give(8 << 20)
    assert room.take(8 << 20) and not room.take(256 * KIB)


def test_room_that_another_process_gives_up_is_taken_at_once() -> None:
    room = BodyBudget(100 * KIB, lambda: room.give(70 * KIB))
    assert room.take(70 * KIB) and room.take(50 * KIB) and room.bytes == 50 * KIB
