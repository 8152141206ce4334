import asyncio
import os
import signal
import threading

import pytest

from tests.support.children import in_child
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


def test_stop_cancels_what_runs() -> None:
    thread, ended = LoopThread("other"), threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    thread.submit(forever())
    thread.run(name_of_thread())
    thread.stop()
    assert ended.is_set()


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


def test_a_child_lets_go_of_connections_and_does_not_disturb_the_parent() -> None:
    async def work() -> None:
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
        assert os.waitpid(pid, 0)[1] == 0
        os.close(reading)
        os.close(writing)
        accepted[0].close()
        listener.close()

    asyncio.run(work())
