"""Reads whose bytes take longer to come than a replica may be silent."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles
from tests.unit.client.threefs_client.data.test_reads import KIB, check, one_serves, play, serve
from threefs.errors import ConnectionLost, Corrupt, CorruptChunk, DeadlineExceeded, NotServing, ThreefsError


def test_a_large_read_passes_a_slow_link() -> None:
    """Each replica in turn was given up while its bytes came."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.bytes_per_s = 1.5 * (1 << 20)
        await check(fs, [("/a", 0, 64 * KIB)])
        assert len(files.reads()) == 1

    play(scene, attempt_timeout_s=0.001)


def test_a_large_read_is_given_up_as_soon_as_nothing_comes() -> None:
    """It waited for as long as its bytes may take, although other replicas could answer."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.bytes_per_s = 1.5 * (1 << 20)
        for kind in (files.storage.silent, files.storage.stalled):
            files.cluster.learn(dataclasses.replace(files.cluster.routing))  # nothing is avoided
            files.storage.calls.clear()
            kind.add("storage-1:1")
            for _ in range(3):  # one of them asks that replica first
                await check(fs, [("/a", 0, 64 * KIB)])
            assert len(files.reads()) == 4
            kind.clear()

    play(scene, attempt_timeout_s=0.001, timeout_s=0.1)


def test_the_last_replica_that_can_be_asked_may_begin_a_large_answer_late() -> None:
    """When the disks of all were busy, each was given up in turn, and made to read everything once more."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.pause_s = lambda: 0.005
        await check(fs, [("/a", 0, 64 * KIB)])
        assert len(files.reads()) == 3, "one at each replica"
        files.storage.calls.clear()
        files.cluster.learn(one_serves(files.cluster.routing))
        await check(fs, [("/a", 0, 64 * KIB)])
        assert len(files.reads()) == 1

    play(scene, attempt_timeout_s=0.001, timeout_s=0.1)


@pytest.mark.parametrize(
    ("error", "leaves"), [(ConnectionLost(), False), (ConnectionLost(), True), (DeadlineExceeded(), True)]
)
def test_a_large_read_goes_back_to_a_replica_that_can_answer_when_the_other_one_hangs(
    error: ThreefsError, leaves: bool
) -> None:
    """It waited for the one that hung, until its deadline, since the other one had been asked before. That one had been
    restarted, or had not answered in time; then the chain goes on with it alone."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        two = serve(files.cluster.routing, 2)
        files.cluster.learn(two)

        def fail(address: str, *_: object) -> ThreefsError:
            files.storage.silent.update({f"storage-{number}:1" for number in (1, 2)} - {address})
            if leaves:
                first = int(address[len("storage-")])
                later = serve(two, 1, first=first)
                asyncio.get_running_loop().call_later(0.0005, files.cluster.learn, later)
            return error

        files.storage.before.append(fail)
        await check(fs, [("/a", 0, 64 * KIB)])

    play(scene, attempt_timeout_s=0.001, timeout_s=0.05)


Answer = Callable[[bool, int], Awaitable[None]]


def ask_two(files: MemoryFiles, answer: Answer) -> list[bool]:
    """Two replicas serve. `answer` is told whether the one that is asked is that which was asked first, and how often
    it was asked before. Returns, as it grows, which was asked."""
    files.cluster.learn(serve(files.cluster.routing, 2))
    call, asked, addresses = files.storage.call, list[bool](), list[str]()

    async def call_two(address: str, method: Any, request: Any, **options: Any) -> Any:
        addresses.append(address)
        is_first = address == addresses[0]
        asked.append(is_first)
        await answer(is_first, asked.count(is_first) - 1)
        return await call(address, method, request, **options)

    files.storage.call = call_two  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("error", [ConnectionLost(), CorruptChunk(), Corrupt(), NotServing()])
def test_a_busy_replica_is_left_ever_later_when_the_other_one_fails_again_and_again(error: ThreefsError) -> None:
    """It was left each time after the same silence, and made to read everything anew."""

    async def answer(is_first: bool, before: int) -> None:
        if is_first:
            raise error
        await asyncio.sleep(0.005)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        asked = ask_two(files, answer)
        await check(fs, [("/a", 0, 64 * KIB)])
        assert asked.count(False) <= 4, "after 1, 2 and 4 ms of silence"

    play(scene, attempt_timeout_s=0.001, timeout_s=1.0)


def test_a_replica_that_hangs_is_left_again_for_one_that_has_failed_once() -> None:
    """It was left once. The other one was just being restarted, and was never asked again."""

    async def answer(is_first: bool, before: int) -> None:
        if is_first:
            await asyncio.sleep(1)
        if before == 0:
            raise ConnectionLost

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        asked = ask_two(files, answer)
        await check(fs, [("/a", 0, 64 * KIB)])
        assert asked == [True, False, True, False]

    play(scene, attempt_timeout_s=0.001, timeout_s=0.05)


@pytest.mark.parametrize("another_fails", [False, True])
def test_bytes_that_came_while_this_process_was_stopped_show_that_a_replica_works(
    another_fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A signal had stopped the process, or its loop was held up: the timer came before the bytes in the socket. An
    error of another call that is met there ends no read, and is told."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        def receive() -> None:
            files.storage.frames += 1
            if another_fails:
                raise MemoryError

        files.storage.bytes_per_s = 1.05 * (1 << 20)  # less than a frame comes in the time of an attempt
        files.storage.receive = receive
        await check(fs, [("/a", 0, 64 * KIB)])
        assert len(files.reads()) == 1

    play(scene, attempt_timeout_s=0.0005)
    assert ("received bytes could not be taken in" in caplog.text) == another_fails


def test_a_large_read_that_is_cancelled_touches_no_memory_of_its_caller_any_more() -> None:
    """All calls but the first ended some steps after their caller had gone on: what came meanwhile went into its
    buffer."""
    calls: list[asyncio.Future[Any]] = []
    ended: list[bool] = []

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a")

        def call(*_: Any, **__: Any) -> asyncio.Future[Any]:
            calls.append(asyncio.get_running_loop().create_future())
            return calls[-1]

        async def read() -> None:
            try:
                await fs.read_batch([(file, n * 64 * KIB, 64 * KIB) for n in range(3)], into=bytearray(192 * KIB))
            finally:
                ended.extend(each.cancelled() for each in calls)

        files.peers.call = call  # type: ignore[method-assign,assignment]
        reading = asyncio.create_task(read())
        while len(calls) < 3:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        assert ended == [True] * 3

    play(scene, attempt_timeout_s=0.001)
