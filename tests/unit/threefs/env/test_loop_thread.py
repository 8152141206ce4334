import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.harness.children import in_child
from threefs.env import loop_thread
from threefs.env.loop_thread import LoopThread
from threefs.env.net import RealNet, Stream


async def name_of_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_runs_on_the_other_thread() -> None:
    thread = LoopThread("other")
    assert thread.run(name_of_thread()) == "other"
    thread.stop()
    thread.stop()


def test_a_loop_whose_thread_cannot_be_started_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of a program that could have no more threads left five of them."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    LoopThread().stop()  # the first one makes what all loops of a process share
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(RuntimeError, match="new thread"):
            LoopThread()
        assert len(os.listdir("/proc/self/fd")) <= before


def test_errors_come_back() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop_thread.shared().run(fail())


def test_it_works_inside_a_running_loop_of_the_caller() -> None:
    async def caller() -> str:
        return loop_thread.shared().run(name_of_thread())

    assert asyncio.run(caller()) == "threefs"


def test_a_blocking_call_on_the_loop_itself_is_an_error_not_a_deadlock() -> None:
    async def outer() -> None:
        loop_thread.shared().run(name_of_thread())

    with pytest.raises(RuntimeError, match="wait for itself"):
        loop_thread.shared().run(outer())


def test_many_threads_share_one_loop() -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(loop_thread.shared().run(name_of_thread()))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["threefs"] * 20


def test_an_interrupted_wait_ends_when_the_work_has_noticed() -> None:
    lent = bytearray(1)

    async def work() -> None:
        while True:
            await asyncio.sleep(0)
            time.sleep(0.2)  # noqa: ASYNC251  (the loop has much to do)
            lent[0] = (lent[0] + 1) % 256

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop_thread.shared().run(work())
        seen = lent[0]
        time.sleep(0.5)
        assert lent[0] == seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_call_has_ended_when_the_caller_goes_on() -> None:
    """It may be putting back what it has taken out of an object that the caller uses again."""
    ended: list[bool] = []

    async def work() -> None:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # not before it runs, however late that is
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            ended.append(True)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop_thread.shared().run(work())
        assert ended
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_stop_cancels_what_runs() -> None:
    thread, ended = LoopThread("other"), threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    submitted = thread.submit(forever())
    thread.run(name_of_thread())
    thread.stop()
    assert ended.is_set() and submitted.cancelled()
    assert thread.submit(forever()).cancelled(), "it comes too late"


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    parents = loop_thread.shared()
    parents.run(name_of_thread())
    before = loop_thread.generation()

    def child() -> None:
        assert loop_thread.generation() == before + 1
        assert loop_thread.shared() is not parents
        assert loop_thread.shared().run(name_of_thread()) == "threefs"

    assert in_child(child) == 0
    assert loop_thread.generation() == before
    assert loop_thread.shared() is parents
    assert parents.run(name_of_thread()) == "threefs"


async def test_a_child_lets_go_of_connections_and_does_not_disturb_the_parent() -> None:
    accepted: list[Stream] = []
    listener = await RealNet().listen("127.0.0.1", 0, accepted.append)
    stream = await RealNet().connect(listener.address, 5.0)
    while not accepted:
        await asyncio.sleep(0.001)
    readable = asyncio.Event()
    stream.on_readable(readable.set)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os.read(reading, 1)  # outlive the parent's connection
        os._exit(0)
    accepted[0].send([b"still here"])
    await asyncio.wait_for(readable.wait(), 10)
    view = memoryview(bytearray(10))
    assert stream.recv_into([view]) == 10
    ended = asyncio.Event()
    accepted[0].on_readable(ended.set)
    stream.close()
    await asyncio.wait_for(ended.wait(), 10)
    assert accepted[0].recv_into([view]) == 0, "the child must not keep the connection open"
    os.write(writing, b"x")
    assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
    os.close(reading)
    os.close(writing)
    accepted[0].close()
    listener.close()


ENDS = """
import asyncio, os
from threefs.env import loop_thread
{before}
def store():
    try:
        print(loop_thread.run({work}))
    except TimeoutError:
        print("too late")
loop_thread.at_exit(store)
loop_thread.run(asyncio.sleep(0))
"""


TOO_LATE = """
import asyncio, os
from threefs.env import loop_thread
loop_thread.run(asyncio.sleep(0))
class Left:
    def __del__(self, run=loop_thread.run, sleep=asyncio.sleep, write=os.write):
        try:
            run(sleep(0))
        except RuntimeError as error:
            write(1, str(error).encode())
left = Left()
"""


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def ended(before: str, work: str) -> str:
    """What a program says that ends with that work."""
    return said(ENDS.format(before=before, work=work))


def test_work_that_is_left_is_done_when_the_program_ends() -> None:
    assert ended("", "asyncio.sleep(0.01, 'stored')") == "stored\n"
    assert ended("loop_thread.EXIT_S = 0.2", "asyncio.sleep(3600)") == "too late\n"


def test_a_call_of_a_finalizer_fails_instead_of_waiting_for_a_thread_that_never_runs() -> None:
    assert said(TOO_LATE) == "the program is ending, so it is too late for calls to the cluster"


CHILD = """
import asyncio, multiprocessing, sys, threading
from threefs.env import loop_thread
def store():
    print(loop_thread.run(asyncio.sleep(0.01, "stored")))
loop_thread.at_exit(store)
def work():
    threading.main_thread().join() if sys.argv[2] == "late" else None
    for _ in range(3):
        loop_thread.run(asyncio.sleep(0.1))
    print("worked")
def failing():
    loop_thread.LoopThread = LoopThread
    raise OSError("Too many open files")
LoopThread = loop_thread.LoopThread
def main():
    if sys.argv[2] == "failed":
        loop_thread.LoopThread, call = failing, asyncio.sleep(0)
        try: loop_thread.run(call)
        except OSError: call.close()
    if sys.argv[2] != "late":
        loop_thread.run(asyncio.sleep(0))
    threading.Thread(target=work).start()
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=main)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("method", "first_call"),
    [*itertools.product(["fork", "spawn", "forkserver"], ["early", "late"]), ("fork", "failed")],
)
def test_threads_of_a_child_go_on_when_its_main_function_has_ended(
    tmp_path: Path, method: str, first_call: str
) -> None:
    """Their calls were broken off, so a checkpoint that was being saved in the background was lost."""
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    command = [sys.executable, str(program), method, first_call]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\nstored\n", "")


@pytest.mark.processes
def test_a_loop_that_is_stuck_does_not_keep_the_program() -> None:
    before = "import time; loop_thread.EXIT_S = loop_thread._STOP_S = 0.2\nasync def stuck(): time.sleep(3600)"
    assert ended(before, "stuck()") == "too late\n"


def test_a_task_of_another_loop_gets_the_result_and_the_error() -> None:
    thread = LoopThread("other")

    async def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        assert await thread.run_for_loop(name_of_thread()) == "other"
        with pytest.raises(KeyError):
            await thread.run_for_loop(fail())

    asyncio.run(main())
    assert thread.run(thread.run_for_loop(name_of_thread())) == "other"  # a task of the same loop
    thread.stop()


def test_a_cancelled_task_of_another_loop_waits_until_its_work_has_ended() -> None:
    thread = LoopThread("other")
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    async def main() -> None:
        task = asyncio.ensure_future(thread.run_for_loop(work()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())
    thread.stop()
