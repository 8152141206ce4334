"""The limit follows what answers do."""

from threefs.sender_limit import LEAST, STALL_S, OwnLimit, SenderLimit

MIB = 1 << 20


def steady(limit: SenderLimit, begin: float, seconds: float, rate: float = 100 * MIB) -> float:
    """Answers of 1 MiB that come one after the other at a rate."""
    now = begin
    while now < begin + seconds:
        now += MIB / rate
        limit.received(now, MIB, MIB / rate, 0)
    return now


def test_an_answer_that_stalls_halves_the_limit_once_in_a_while() -> None:
    shared = OwnLimit(32)
    limit = SenderLimit(shared)
    now = steady(limit, 1000.0, 1.0)
    assert [shared.value, limit.stalls] == [32, 0]
    for _ in range(5):  # of the same moment
        limit.received(now, MIB, STALL_S + 0.1, 0)
    assert shared.value == 16 and shared.too_many == 32
    assert [limit.stalls] == [5]
    limit.received(now + 0.6, MIB, STALL_S + 0.1, 0)
    assert shared.value == 8
    for step in range(10):
        limit.received(now + 2.0 + step, MIB, STALL_S + 0.1, 0)
    assert shared.value == LEAST, "not less"


def test_an_answer_that_takes_as_long_as_its_bytes_need_is_no_stall() -> None:
    shared = OwnLimit(32)
    limit = SenderLimit(shared)
    now = steady(limit, 1000.0, 1.0)
    limit.received(now, 32 * MIB, 0.32, 0)
    limit.received(now, MIB, 0.5, 49 * MIB)
    assert shared.value == 32 and not limit.stalls


def test_a_line_that_has_become_slower_is_learned() -> None:
    """After a while the old rate counts no more."""
    shared = OwnLimit(32)
    limit = SenderLimit(shared)
    now = steady(limit, 1000.0, 1.0)
    now = steady(limit, now, 60.0, rate=4 * MIB)
    stalls = limit.stalls
    steady(limit, now, 10.0, rate=4 * MIB)
    assert limit.stalls == stalls


def test_it_rises_soon_up_to_half_of_what_was_too_much_and_slowly_from_there() -> None:
    shared = OwnLimit(32)
    limit = SenderLimit(shared)
    now = steady(limit, 1000.0, 1.0)
    for step in range(3):
        limit.received(now + step, MIB, 0.4, 0)
    assert (shared.value, shared.too_many) == (4, 8)
    now += 3.0
    values = []
    for _ in range(400):
        now += 0.01
        limit.binding(now)
        values.append(shared.value)
    assert values[-1] in (5, 6), "at half of 8 it goes slowly"
    shared.too_many = 32
    for _ in range(400):
        now += 0.01
        limit.binding(now)
    assert 15 <= shared.value <= 18


def test_it_rises_no_further_than_configured_and_only_while_answers_wait() -> None:
    shared = OwnLimit(6)
    shared.value = 4
    limit = SenderLimit(shared)
    steady(limit, 1000.0, 5.0)
    assert shared.value == 4
    for second in range(100):
        limit.binding(2000.0 + second)
    assert shared.value == 6


def test_times_that_another_boot_has_left_do_not_matter() -> None:
    shared = OwnLimit(32)
    shared.raised_at = shared.cut_at = 1e9
    limit = SenderLimit(shared)
    now = steady(limit, 10.0, 1.0)
    limit.received(now, MIB, 0.5, 0)
    assert shared.value == 16
    shared.cut_at = 1e9
    limit.binding(now)
    assert shared.value == 17
