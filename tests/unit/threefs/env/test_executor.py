import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from threefs.env.executor import process_pool, results
from threefs.errors import Corrupt, Unavailable

INTERRUPTED = """
import multiprocessing, os, signal, sys, threading, time
from threefs.env.executor import interrupts_held

class Interrupting:
    def __reduce__(self):
        os.killpg(0, signal.SIGINT)  # as a terminal does
        os.read(received, 1)  # the other thread has received it
        return str, ("the process ran",)

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    received, sent = os.pipe()
    os.set_blocking(sent, False)
    signal.set_wakeup_fd(sent)
    try:
        with interrupts_held("spawn"):
            process = multiprocessing.get_context("spawn").Process(target=print, args=(Interrupting(),))
            process.start()
        print("not interrupted")
    except KeyboardInterrupt:
        process.join()
        print("interrupted")
"""


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


class Call(Future[int]):
    def cancel(self) -> bool:
        raise AssertionError("the thread of the pool ends in the midst when it finds a call that was cancelled")


class BreakingPool(ProcessPoolExecutor):
    """Says of one call that the workers have died, and of the others a little later."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(1)
        self.calls: list[Call] = []
        self._error = error

    def submit(self, *_: Any) -> Call:  # type: ignore[override]
        self.calls.append(Call())
        if len(self.calls) == 3:
            self.calls[0].set_exception(self._error)
            threading.Timer(0.05, self._end).start()
        return self.calls[-1]

    def _end(self) -> None:
        for call in self.calls[1:]:
            call.set_exception(self._error)


def test_no_call_of_a_pool_that_has_died_is_cancelled() -> None:
    pool = BreakingPool(BrokenProcessPool("died"))
    with pytest.raises(Unavailable, match="a worker process has died"):
        list(results(pool, square, [(1,)] * 3, at_once=3))
    assert all(call.done() for call in pool.calls)


def test_after_ctrl_c_the_calls_of_a_pool_are_left_to_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(results(BreakingPool(KeyboardInterrupt()), square, [(1,)] * 3, at_once=3))


@pytest.mark.processes
def test_a_pool_that_is_interrupted_begins_no_call_that_waits() -> None:
    with pytest.raises(KeyboardInterrupt), process_pool(1) as executor:
        calls = [executor.submit(square, 1) for _ in range(5000)]
        raise KeyboardInterrupt
    assert calls[-1].cancelled()


@pytest.mark.processes
def test_ctrl_c_that_another_thread_receives_waits_until_a_process_is_started(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, start_new_session=True)
    assert (done.stdout, done.stderr) == ("the process ran\ninterrupted\n", "")
