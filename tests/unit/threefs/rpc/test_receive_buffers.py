from collections import deque

from threefs.rpc.receive_buffers import BodyBudget, advance


def test_views_are_filled_from_the_front_and_what_is_left_went_behind_them() -> None:
    wanted = deque(memoryview(bytearray(size)) for size in (3, 4))
    assert advance(wanted, 2) == 0 and [len(view) for view in wanted] == [1, 4]
    assert advance(wanted, 3) == 0 and [len(view) for view in wanted] == [2]
    assert advance(wanted, 7) == 5 and not wanted


def test_a_body_without_room_waits_and_one_that_is_too_large_goes_alone() -> None:
    asked: list[int] = []
    room = BodyBudget(100, lambda: asked.append(room.bytes))
    assert room.take(60) and not room.take(41) and asked == [60]
    assert room.take(40)
    room.give(60)
    room.give(40)
    assert room.take(1000) and not room.take(1)
    room.give(1000)
    assert not room.bytes and asked == [60, 1000]


def test_room_that_another_process_gives_up_is_taken_at_once() -> None:
    room = BodyBudget(100, lambda: room.give(70))
    assert room.take(70) and room.take(50) and room.bytes == 50
