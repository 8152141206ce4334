"""A model of a machine on which clients and background work run: time passes only here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.scheduling.background_pace import (
    BURST_BYTES,
    LONGEST_BURST_S,
    PARALLEL,
    PIECE_BYTES,
    QUIET_S,
    BackgroundPace,
    Foreground,
    PaceLimits,
)

from threefs.errors import InvalidSettings

_PIECES = st.tuples(st.integers(0, 4 << 20), st.floats(0.0001, 0.5))  # size, and how long it takes
_QUIET = Foreground(0, float("-inf"))


@given(st.lists(_PIECES, max_size=40))
def test_alone_it_never_waits(pieces: list[tuple[int, float]]) -> None:
    pace, now = BackgroundPace(PaceLimits()), 0.0
    for size, took_s in pieces:
        assert pace.wait_s(now, _QUIET) == 0
        burst = pace.begin(now, size, _QUIET)
        now += took_s
        pace.end(now, burst, _QUIET)


def test_alone_a_bounded_number_of_pieces_run_side_by_side() -> None:
    pace = BackgroundPace(PaceLimits())
    for _ in range(PARALLEL):
        assert pace.wait_s(0.0, _QUIET) == 0
        burst = pace.begin(0.0, 1 << 20, _QUIET)
    assert pace.wait_s(0.0, _QUIET) is None
    pace.end(1.0, burst, _QUIET)
    assert pace.wait_s(1.0, _QUIET) == 0


def run(pace: BackgroundPace, pieces: list[tuple[int, float]], foreground: Foreground) -> tuple[float, float]:
    """Do the pieces one after the other. Returns the time, and how much of it was work."""
    now = worked_s = 0.0
    for size, took_s in pieces:
        wait_s = pace.wait_s(now, foreground)
        assert wait_s is not None
        now += wait_s
        assert pace.wait_s(now, foreground) == pytest.approx(0, abs=1e-9)
        burst = pace.begin(now, size, foreground)
        now, worked_s = now + took_s, worked_s + took_s
        pace.end(now, burst, foreground)
    return now, worked_s


@given(st.lists(_PIECES, min_size=1, max_size=40), st.integers(1, 1000))
def test_it_is_never_starved(pieces: list[tuple[int, float]], in_flight: int) -> None:
    """However many calls are in flight, all the time, it gets its minimum beside the time of its own work."""
    limits = PaceLimits(min_bytes_per_s=1 << 20)
    now, worked_s = run(BackgroundPace(limits), pieces, Foreground(in_flight, 0.0))
    counted = sum(max(size, PIECE_BYTES) for size, _ in pieces)
    assert now <= worked_s + counted / limits.min_bytes_per_s + 1e-6


@given(st.lists(st.floats(0.0001, 0.05), min_size=2, max_size=40), st.integers(1, 8))
def test_it_takes_no_more_than_its_share_of_the_time(times: list[float], in_flight: int) -> None:
    limits = PaceLimits(min_bytes_per_s=1)  # no minimum that matters
    pieces = [(BURST_BYTES, took_s) for took_s in times]
    now, worked_s = run(BackgroundPace(limits), pieces, Foreground(in_flight, 0.0))
    assert worked_s - times[-1] <= now * limits.share / in_flight + 1e-6  # the pause after the last one is not in `now`


@given(st.floats(0, 1), st.integers(PIECE_BYTES, 64 << 20), st.integers(1, 100), st.integers(1, 100))
def test_it_steps_back_as_the_queue_of_clients_grows(took_s: float, size: int, one: int, more: int) -> None:
    pace = BackgroundPace(PaceLimits())
    assert pace.pause_s(took_s, size, one + more) >= pace.pause_s(took_s, size, one) >= 0


def test_a_burst_is_bounded() -> None:
    pace, busy = BackgroundPace(PaceLimits()), Foreground(1, 0.0)
    begun = 0
    while pace.wait_s(0.0, busy) == 0:
        pace.begin(0.0, 0, busy)
        begun += 1
    assert begun == min(PARALLEL, BURST_BYTES // PIECE_BYTES)


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_piece_that_hangs_does_not_hold_up_the_others(size: int) -> None:
    """It waited for a slow peer, and all other background work of the process waited for its end."""
    pace, limits, busy = BackgroundPace(PaceLimits()), PaceLimits(), Foreground(1, 0.0)
    hanging = pace.begin(0.0, size, busy)
    now, done, took_s = LONGEST_BURST_S, 0, 0.001
    while now < 20.0:
        wait_s = pace.wait_s(now, busy)
        assert wait_s is not None
        if wait_s > 0:
            now += wait_s + 1e-9
            continue
        burst = pace.begin(now, BURST_BYTES, busy)
        next_s = pace.wait_s(now, busy)
        assert next_s is not None and next_s > 0, "one burst at a time beside it"
        now, done = now + took_s, done + BURST_BYTES
        pace.end(now, burst, busy)
    pace.end(now, hanging, busy)
    took = done // BURST_BYTES * took_s
    assert took <= 20.0 * limits.share + took_s and done >= limits.min_bytes_per_s * 18
    wait_s = pace.wait_s(now + 10.0, busy)
    assert wait_s == 0


def test_pieces_that_hang_are_bounded_too() -> None:
    pace, busy, now, begun = BackgroundPace(PaceLimits()), Foreground(1, 0.0), 0.0, 0
    while (wait_s := pace.wait_s(now, busy)) is not None:
        now += wait_s + 1e-9
        if wait_s == 0:
            pace.begin(now, BURST_BYTES, busy)
            begun += 1
    assert begun == PARALLEL and now > (PARALLEL - 1) * LONGEST_BURST_S


def test_work_done_without_foreground_calls_is_not_paid_for_later() -> None:
    pace, now = BackgroundPace(PaceLimits()), 0.0
    last = pace.begin(now, 1 << 20, _QUIET)
    for _ in range(1000):  # there is always one that runs
        burst, last = last, pace.begin(now, 1 << 20, _QUIET)
        now += 1.0
        pace.end(now, burst, _QUIET)
    busy = Foreground(1, now)
    pace.end(now, last, busy)
    wait_s = pace.wait_s(now, busy)
    assert wait_s is not None and wait_s <= (1 << 20) / PaceLimits().min_bytes_per_s


def test_it_goes_on_as_soon_as_the_clients_are_quiet() -> None:
    pace = BackgroundPace(PaceLimits(min_bytes_per_s=1))
    last = Foreground(0, 10.0)
    burst = pace.begin(10.0, 1 << 20, last)
    pace.end(10.01, burst, last)
    wait_s = pace.wait_s(10.01, last)
    assert wait_s == pytest.approx(QUIET_S - 0.01)
    assert pace.wait_s(10.0 + QUIET_S, last) == 0


def test_a_minimum_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="at least 1"):
        PaceLimits(min_bytes_per_s=0)
