import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from threefs.env.executor import process_pool, results
from threefs.errors import Corrupt, Unavailable


def square(number: int) -> int:
    if number < 0:
        raise Corrupt(f"{number} is negative")
    return number * number


def kill_oneself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_from_all_calls_and_few_are_handed_out_at_a_time() -> None:
    handed_out, got = 0, []

    def calls() -> Iterator[tuple[int]]:
        nonlocal handed_out
        for number in range(100):
            handed_out += 1
            yield (number,)

    with ThreadPoolExecutor(3) as executor:
        for result in results(executor, square, calls(), at_once=5):
            got.append(result)
            assert handed_out - len(got) < 5 + 5  # those that run, and those whose results wait here
    assert sorted(got) == [number * number for number in range(100)]


def test_the_first_error_ends_it() -> None:
    with ThreadPoolExecutor(2) as executor, pytest.raises(Corrupt, match="-1 is negative"):
        list(results(executor, square, [(1,), (-1,), *[(2,)] * 50], at_once=2))


@pytest.mark.processes
def test_processes_compute_and_their_errors_arrive() -> None:
    with process_pool(1) as executor:
        assert list(results(executor, square, [(3,)], at_once=4)) == [9]
        with pytest.raises(Corrupt, match="-1 is negative"):
            list(results(executor, square, [(-1,)], at_once=4))
        assert list(results(executor, square, [(4,)], at_once=4)) == [16], "an error ends no worker"


@pytest.mark.processes
def test_the_death_of_a_worker_is_said() -> None:
    with process_pool(1) as executor, pytest.raises(Unavailable, match=r"a worker process has died .*__main__"):
        list(results(executor, kill_oneself, [(1,)], at_once=1))
