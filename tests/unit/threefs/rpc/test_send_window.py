"""Who may call, and who waits."""

from hypothesis import given
from hypothesis import strategies as st

from threefs.rpc.send_window import MAX_HOPS, SendWindow


def test_calls_and_bytes_are_bounded_and_those_that_wait_go_in_order() -> None:
    window: SendWindow[str] = SendWindow(max_calls=3, most_bytes=100)
    assert window.try_take(60) and not window.try_take(50)
    window.wait("b", 50)
    assert not window.try_take(10), "it came later than those that wait"
    assert window.try_take(0), "what has no payload takes no room of it"
    window.wait("c", 10)
    assert window.next() is None and window.waiting == 2
    window.give(60)
    assert window.next() == "b" and window.next() == "c" and window.next() is None
    assert window.calls == 3 and not window.try_take(0)
    window.wait("d")
    window.give(0)
    assert window.next() == "d"


def test_what_is_larger_than_the_window_goes_alone() -> None:
    window: SendWindow[str] = SendWindow(10, 100)
    assert window.try_take(500) and not window.try_take(1) and window.try_take(0)
    window.give(500)
    assert window.try_take(1) and not window.try_take(500)


def test_there_is_room_only_if_no_call_waits() -> None:
    window: SendWindow[str] = SendWindow(4, 100)
    assert window.has_room(100) and window.has_room(100, 2), "a payload goes alone"
    assert window.try_take(30, 1)
    assert window.has_room(70) and not window.has_room(71)
    assert window.has_room(20, 1) and not window.has_room(21, 1), "half of it is for calls that end there"
    window.wait("a", 80)
    assert not window.has_room(1) and not window.has_room()


def test_a_withdrawn_waiter_is_not_called() -> None:
    window: SendWindow[str] = SendWindow(1, 100)
    assert window.try_take()
    window.wait("a")
    window.wait("b")
    window.withdraw("a")
    assert window.next() is None
    window.give()
    assert window.next() == "b" and not window.waiting


def test_calls_at_their_last_process_always_find_room_beside_those_that_go_on() -> None:
    window: SendWindow[str] = SendWindow(16, 1024)
    passing = 0
    while window.try_take(100, hops=2):
        passing += 1
    assert passing == 2, "a quarter"
    while window.try_take(100, hops=1):
        passing += 1
    assert passing == 5, "together half"
    assert window.try_take(100) and window.try_take(400)


def test_many_small_calls_that_go_on_leave_room_too() -> None:
    window: SendWindow[str] = SendWindow(16, 1024)
    while window.try_take(0, hops=1):
        pass
    assert window.calls == 8 and window.try_take()


steps = st.lists(
    st.tuples(st.sampled_from(["call", "end", "withdraw"]), st.integers(0, 300), st.integers(0, MAX_HOPS + 1)),
    max_size=200,
)


@given(steps)
def test_whatever_happens_the_bounds_hold_and_all_get_their_turn(steps: list[tuple[str, int, int]]) -> None:
    window: SendWindow[int] = SendWindow(8, 256)
    running: dict[int, tuple[int, int]] = {}
    waiting: dict[int, tuple[int, int]] = {}

    def end(number: int) -> None:
        window.give(*running.pop(number))
        while (turn := window.next()) is not None:
            running[turn] = waiting.pop(turn)
            check()

    def check() -> None:
        assert len(running) == window.calls <= 8 and len(waiting) == window.waiting
        sizes = [size for size, _ in running.values() if size]
        assert sum(sizes) <= 256 or len(sizes) == 1
        for part in range(1, MAX_HOPS + 1):
            passing = [size for size, hops in running.values() if hops >= part]
            sizes = [size for size in passing if size]
            assert len(passing) <= 8 >> part and (sum(sizes) <= 256 >> part or len(sizes) == 1)

    for number, (what, size, hops) in enumerate(steps):
        if what == "call":
            if window.try_take(size, hops):
                running[number] = (size, hops)
            else:
                window.wait(number, size, hops)
                waiting[number] = (size, hops)
        elif what == "end" and running:
            end(min(running))
        elif what == "withdraw" and waiting:
            window.withdraw(min(waiting))
            del waiting[min(waiting)]
        check()
    while running:
        end(min(running))
    assert not waiting and not window.calls
