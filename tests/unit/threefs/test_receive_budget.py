"""Which answers may come, and which wait."""

from hypothesis import given
from hypothesis import strategies as st

from threefs.receive_budget import ReceiveBudget


def budget(slots: int, slot_bytes: int = 100) -> ReceiveBudget[str]:
    made: ReceiveBudget[str] = ReceiveBudget(slot_bytes)
    made.slots = slots
    return made


def test_senders_are_bounded_and_one_that_sends_already_takes_no_other_slot() -> None:
    room = budget(2, 1000)
    assert room.try_take("a", 10) and room.try_take("b", 10) and room.try_take("a", 10)
    assert not room.try_take("c", 10)
    room.give("a", 10)
    assert not room.try_take("c", 10), "an answer of a is still to come"
    room.give("a", 10)
    assert room.try_take("c", 10)


def test_bytes_are_bounded_and_an_answer_beyond_them_comes_alone() -> None:
    room = budget(2, 100)
    assert room.try_take("a", 150) and not room.try_take("a", 51) and room.try_take("a", 50)
    room.give("a", 150)
    room.give("a", 50)
    assert room.try_take("a", 5000) and not room.try_take("a", 1)
    assert room.used_slots == 50


def test_without_a_slot_nothing_comes() -> None:
    room = budget(0)
    assert not room.try_take("a", 1)
    room.wait("a", 1, "x")
    assert room.next() is None
    room.slots = 1
    assert room.next() == "x"


def test_senders_with_announced_answers_take_turns() -> None:
    """One that announces many does not come before those that announce few."""
    room = budget(1, 1000)
    assert room.try_take("z", 1)
    for sender, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("c", "c2")):
        room.wait(sender, 1, item)
    order, last = [], "z"
    while room.waiting:
        room.give(last, 1)
        turn = room.next()
        assert turn is not None
        last = turn[0]
        order.append(turn)
    assert order == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_sender_that_sends_already_does_not_keep_its_slot_from_the_next_one() -> None:
    room = budget(1, 1000)
    assert room.try_take("a", 1)
    room.wait("b", 1, "b1")
    room.wait("a", 1, "a1")
    assert room.next() is None and not room.try_take("a", 1), "it is the turn of b"
    room.give("a", 1)
    assert room.next() == "b1"


def test_an_answer_that_is_withdrawn_is_not_granted() -> None:
    room = budget(1)
    assert room.try_take("z", 100)
    room.wait("a", 1, "a1")
    room.wait("a", 1, "a2")
    room.wait("b", 1, "b1")
    room.withdraw("a", "a1")
    room.withdraw("b", "b1")
    room.give("z", 100)
    assert room.next() == "a2" and room.next() is None and not room.waiting


STEPS = st.lists(
    st.tuples(st.sampled_from("twgnvs"), st.sampled_from("abcdef"), st.integers(1, 250)), min_size=1, max_size=60
)


@given(STEPS)
def test_whatever_happens_the_bounds_hold_and_nothing_is_lost(steps: list[tuple[str, str, int]]) -> None:
    room: ReceiveBudget[int] = ReceiveBudget(100)
    coming: list[tuple[str, int]] = []
    waiting: dict[int, tuple[str, int]] = {}
    for number, (what, sender, size) in enumerate(steps):
        slots = room.slots
        before = (len({sender for sender, _ in coming}), sum(size for _, size in coming))
        if what == "t" and room.try_take(sender, size):
            assert not waiting
            coming.append((sender, size))
        elif what == "w":
            room.wait(sender, size, number)
            waiting[number] = (sender, size)
        elif what == "g" and coming:
            room.give(*coming.pop(size % len(coming)))
        elif what == "n" and (turn := room.next()) is not None:
            coming.append(waiting.pop(turn))
        elif what == "v" and waiting:
            item = list(waiting)[size % len(waiting)]
            room.withdraw(waiting.pop(item)[0], item)
        elif what == "s":
            room.slots = size % 5
        senders, total = len({sender for sender, _ in coming}), sum(size for _, size in coming)
        assert room.bytes == total and room.senders == senders and room.waiting == len(waiting)
        if what in "tn":
            assert senders <= max(slots, before[0]) and (total <= 100 * slots or len(coming) == 1 or total == before[1])
    while coming:
        room.give(*coming.pop())
    room.slots = 1
    for _ in range(len(waiting)):
        turn = room.next()
        assert turn is not None, "with a slot and nothing else to come, the next one comes"
        room.give(*waiting.pop(turn))
    assert not room.bytes and not room.waiting and not waiting and not room.used_slots
