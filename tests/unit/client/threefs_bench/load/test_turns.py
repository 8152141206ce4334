from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from threefs_bench.load.job import Job, checked
from threefs_bench.load.turns import Pace, Turns, Window
from threefs_bench.load.values import Pair
from threefs_bench.load.verify import Ledger
from threefs_bench.load.workload import Group, groups

FOREVER = Window(0.0, 0.0, float("inf"))


def job(**given: Any) -> Job:
    return checked(Job({"name": "a", "size": "64k", **{name: str(value) for name, value in given.items()}}, {}))


def turns(made: Job, window: Window = FOREVER, ledger: Ledger | None = None) -> Turns:
    return Turns(made, groups(made, 1), window, ledger)


def count(found: Turns, now_s: float = 1.0, most: int = 100) -> int:
    for number in range(most):
        if found.take(now_s) is None:
            return number
    return most


def test_a_job_ends_after_its_size() -> None:
    assert count(turns(job(size="64k"))) == 16
    assert count(turns(job(size="64k", batch=4))) == 4


def test_a_time_based_job_ends_with_its_runtime() -> None:
    made = job(time_based=1, runtime=5)
    found = turns(made, Window.of(made, 100.0))
    assert count(found, 104.9) == 100 and found.take(105.0) is None


def test_the_ramp_is_before_the_runtime_and_moves_no_bytes_of_it() -> None:
    made = job(ramp_time=2, runtime=5)
    window = Window.of(made, 100.0)
    assert (window.load_s, window.begin_s, window.end_s) == (100.0, 102.0, 107.0)
    found = turns(made, window)
    assert count(found, 101.0, most=40) == 40 and count(found, 103.0) == 16


def test_a_stopped_job_has_no_more_turns() -> None:
    found = turns(job())
    assert found.take(1.0) is not None
    found.stopped = True
    assert found.take(1.0) is None


def test_syncs_come_after_so_many_writes() -> None:
    found = turns(job(rw="write", fsync=3))
    taken = [turn.sync for _ in range(9) if (turn := found.take(1.0)) is not None]
    assert taken == ["", "", "fsync"] * 3
    found = turns(job(rw="write", fdatasync=3, batch=4))
    taken = [turn.sync for _ in range(4) if (turn := found.take(1.0)) is not None]
    assert taken == ["fdatasync"] * 4
    found = turns(job(rw="read", fsync=1))
    assert found.take(1.0) is not None


def test_a_rate_of_bytes_and_one_of_operations() -> None:
    pace = Pace(Pair(4096, 0), Pair(0, 10))
    now_s, starts = 100.0, []
    for _ in range(4):
        starts.append(pace.start_s(False, now_s, 1, 4096))
        now_s = max(now_s, starts[-1])
    assert starts[1:] == [pytest.approx(starts[0] + seconds) for seconds in (1, 2, 3)] and starts[0] <= 100.0
    writes = [pace.start_s(True, 100.0, 1, 1 << 30) for _ in range(3)]
    assert writes[2] - writes[0] == pytest.approx(0.2), "the direction has its own rate, of operations"
    assert Pace(Pair(0, 0), Pair(0, 0)).start_s(True, 5.0, 1, 1) == 5.0


def test_a_rate_holds_from_the_first_operation_on() -> None:
    pace = Pace(Pair(0, 0), Pair(100, 100))
    starts = [pace.start_s(False, 100.0, 1, 4096) for _ in range(10)]
    assert starts == [pytest.approx(100.0 + number / 100) for number in range(10)]


def test_what_a_slow_peer_has_missed_is_not_made_up_for() -> None:
    pace = Pace(Pair(0, 0), Pair(10, 10))
    pace.start_s(False, 100.0, 1, 0)
    late = [pace.start_s(False, 200.0, 1, 0) for _ in range(4)]
    assert late[0] == pytest.approx(199.9) and late[3] == pytest.approx(200.2)


def test_no_turn_begins_after_the_end() -> None:
    made = job(rate="4k", runtime=2, time_based=1)
    found = turns(made, Window.of(made, 100.0))
    taken = [found.take(100.0) for _ in range(4)]
    assert [turn and (len(turn.rows), turn.start_s) for turn in taken] == [
        (1, 100.0),
        (1, 101.0),
        (0, 102.0),
        (0, 102.0),
    ]
    assert found.take(102.0) is None


def test_a_verified_block_that_is_not_reached_in_time_is_free_again() -> None:
    made = job(size="64k", rw="randwrite", verify="crc32c", rate="4k", runtime=1, time_based=1)
    ledger = Ledger(16, 1, 4096, 1)
    found = turns(made, Window.of(made, 100.0), ledger)
    (first, *late) = [turn for _ in range(20) if (turn := found.take(100.0)) is not None]
    assert first.rows and len(late) == 19 and not any(turn.rows for turn in late)


def test_a_verified_block_has_one_turn_at_a_time() -> None:
    made = job(size="64k", rw="randwrite", verify="crc32c", time_based=1, runtime=9)
    ledger = Ledger(16, 1, 4096, 1)

    def same() -> Iterator[Group]:
        yield from ((True, [row]) for row in [(0, 0, 4096), (0, 0, 4096), (0, 4096, 4096)])
        yield from repeat((True, [(0, 0, 4096)]))

    found = Turns(made, same(), FOREVER, ledger)
    first, second = found.take(1.0), found.take(1.0)
    assert first is not None and second is not None
    assert (first.rows, second.rows) == ([(0, 0, 4096)], [(0, 4096, 4096)])
    found.end(first)
    third = found.take(1.0)
    assert third is not None and third.rows == first.rows
