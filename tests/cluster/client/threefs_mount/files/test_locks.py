"""Locks of two mounts, on a real cluster."""

import asyncio
import fcntl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client import connect_async
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_fuse.requests import Lock
from threefs_mount.files.locks import FileLocks

from tests.harness.cluster import LocalCluster
from threefs.background import cancel_and_wait
from threefs.errors import Deadlock, InvalidArgument, Locked
from threefs.rpc import methods

WHOLE = (1 << 63) - 1


class Two:
    def __init__(self, here: AsyncFileSystem, there: AsyncFileSystem, inode: int) -> None:
        self.told: list[int] = []
        self.here = FileLocks(here.context, self.tell)
        self.there = FileLocks(there.context, self.tell)
        self.inode = inode

    async def tell(self, inode: int) -> None:
        self.told.append(inode)

    async def refused(self, locks: FileLocks, owner: int, lock: Lock, *, flock: bool = False) -> bool:
        try:
            await locks.acquire(self.inode, owner, lock, flock=flock, wait=False)
        except Locked:
            return True
        return False


def play(cluster: LocalCluster, name: str, scene: Callable[[Two], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await connect_async(cluster.address) as here, await connect_async(cluster.address) as there:
            await here.write_file(f"/{name}", b"")
            await scene(Two(here, there, (await here.stat(f"/{name}")).inode))

    asyncio.run(run())


def locked(start: int = 0, end: int = WHOLE, kind: int = fcntl.F_WRLCK) -> Lock:
    return Lock(start, end, kind, 77)


def test_ranges_exclude_each_other_across_mounts(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        await two.here.acquire(two.inode, 1, locked(0, 9), flock=False, wait=False)
        assert two.told == [two.inode]
        assert await two.refused(two.there, 1, locked(9, 20))
        assert await two.refused(two.here, 2, locked(0, 0, fcntl.F_RDLCK))
        assert not await two.refused(two.there, 1, locked(10, WHOLE))
        assert not await two.refused(two.there, 1, locked(), flock=True), "the kinds do not see each other"
        found = await two.there.conflict(two.inode, 1, locked(0, 100), flock=False)
        assert (found.start, found.end, found.type, found.pid) == (0, 9, fcntl.F_WRLCK, 0)
        found = await two.here.conflict(two.inode, 2, locked(0, 5), flock=False)
        assert found.pid == 77
        await two.here.unlock(two.inode, 1, locked(0, 9, fcntl.F_UNLCK), flock=False)
        assert not two.here.holds(two.inode, 1, flock=False)
        assert (await two.there.conflict(two.inode, 1, locked(0, 5), flock=False)).type == fcntl.F_UNLCK
        await two.there.unlock_all(two.inode, 1, flock=False)
        await two.there.unlock_all(two.inode, 1, flock=True)
        await two.there.unlock_all(two.inode, 5, flock=True)  # who has none

    play(cluster, "ranges", scene)


def test_what_no_process_has_given_up_ends_with_the_open_file(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        for owner, handle in ((1, 7), (2, 7), (3, 8)):
            await two.here.acquire(two.inode, owner, locked(owner, owner), flock=False, wait=False, handle=handle)
        assert two.here.closing_descriptor(two.inode, 7, 1), "a process closes it, and has locks"
        await two.here.unlock_all(two.inode, 1, flock=False)
        await two.here.acquire(two.inode, 1, locked(1, 1), flock=False, wait=False, handle=8)
        assert two.here.closing_handle(7, flock=False)
        await two.here.end_handle(two.inode, 7, 0, flock=False, close=lambda: asyncio.sleep(0))
        held = [two.here.holds(two.inode, owner, flock=False) for owner in (1, 2, 3)]
        assert held == [True, False, True], "of the other open file they stay"
        assert not two.here.closing_handle(7, flock=False) and two.here.closing_handle(7, flock=True)
        for owner in (1, 3):
            assert two.here.closing_descriptor(two.inode, 8, owner)
            await two.here.unlock_all(two.inode, owner, flock=False)
        assert not two.here.closing_handle(8, flock=False)

    play(cluster, "ends", scene)


def test_the_end_of_an_open_file_takes_no_lock_of_the_next_one(cluster: LocalCluster) -> None:
    """The kernel gives the number of its owner to the next open file. That got a lock while what was written under the
    last one was still being stored, and lost it."""

    async def scene(two: Two) -> None:
        stored = asyncio.Event()
        await two.here.acquire(two.inode, 1, locked(), flock=True, wait=False)
        ending = asyncio.create_task(two.here.end_handle(two.inode, 7, 1, flock=True, close=stored.wait))
        await asyncio.sleep(0)
        following = asyncio.create_task(two.here.acquire(two.inode, 1, locked(), flock=True, wait=False))
        await asyncio.sleep(0.1)
        stored.set()
        await asyncio.gather(ending, following)
        assert await two.refused(two.there, 2, locked(), flock=True)
        await two.here.unlock_all(two.inode, 1, flock=True)

    play(cluster, "following", scene)


def test_a_lock_of_a_file_that_is_being_closed_refuses_nobody_on_the_same_mount(cluster: LocalCluster) -> None:
    """close(2) has returned by then. A lock that somebody else has refuses the program nevertheless."""

    async def scene(two: Two) -> None:
        for last_holder in (two.here, two.there):
            stored = asyncio.Event()
            await two.here.acquire(two.inode, 1, locked(0, 9), flock=False, wait=False, handle=7)
            if last_holder is two.there:
                await two.there.acquire(two.inode, 5, locked(10, 19), flock=False, wait=False)
            ending = asyncio.create_task(two.here.end_handle(two.inode, 7, 0, flock=False, close=stored.wait))
            await asyncio.sleep(0)
            asking = asyncio.create_task(two.refused(two.here, 2, locked()))
            await asyncio.sleep(0.1)
            stored.set()
            assert await asking == (last_holder is two.there)
            await ending
            await two.here.unlock_all(two.inode, 2, flock=False)
        await two.there.unlock_all(two.inode, 5, flock=False)

    play(cluster, "closing", scene)


def test_a_lock_is_waited_for(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        for other in (two.here, two.there):
            await two.here.acquire(two.inode, 1, locked(), flock=True, wait=False)
            waiting = asyncio.create_task(other.acquire(two.inode, 2, locked(), flock=True, wait=True))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await two.here.unlock_all(two.inode, 1, flock=True)
            await waiting
            await other.unlock_all(two.inode, 2, flock=True)

    play(cluster, "waiting", scene)


def test_a_cancelled_wait_holds_nothing(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        await two.here.acquire(two.inode, 1, locked(), flock=True, wait=False)
        waiting = asyncio.create_task(two.there.acquire(two.inode, 2, locked(), flock=True, wait=True))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not two.there.holds(two.inode, 2, flock=True)
        await two.here.unlock_all(two.inode, 1, flock=True)
        assert not await two.refused(two.here, 3, locked(), flock=True)

    play(cluster, "stopping", scene)


def test_a_thread_unlocks_while_another_waits(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        await two.here.acquire(two.inode, 1, locked(0, 0), flock=False, wait=False)
        await two.there.acquire(two.inode, 1, locked(1, 1), flock=False, wait=False)
        waiting = asyncio.create_task(two.here.acquire(two.inode, 1, locked(1, 1), flock=False, wait=True))
        await asyncio.sleep(0.02)
        await two.here.unlock(two.inode, 1, locked(0, 0, fcntl.F_UNLCK), flock=False)
        assert not await two.refused(two.there, 1, locked(0, 0))
        await two.there.unlock_all(two.inode, 1, flock=False)
        await waiting

    play(cluster, "threads", scene)


def test_invalid_locks_are_refused(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        for wrong in (fcntl.F_UNLCK, 99):
            with pytest.raises(InvalidArgument):
                await two.here.acquire(two.inode, 1, locked(kind=wrong), flock=False, wait=False)
            with pytest.raises(InvalidArgument):
                await two.here.conflict(two.inode, 1, locked(kind=wrong), flock=False)

    play(cluster, "wrong", scene)


def test_two_mounts_that_wait_for_each_other(cluster: LocalCluster) -> None:
    async def scene(two: Two) -> None:
        await two.here.acquire(two.inode, 1, locked(0, 9), flock=False, wait=True)
        await two.there.acquire(two.inode, 1, locked(10, 19), flock=False, wait=True)

        async def one_after_the_other(locks: FileLocks, lock: Lock) -> str:
            try:
                await locks.acquire(two.inode, 1, lock, flock=False, wait=True)
                return "given"
            except Deadlock:
                return "told"
            finally:
                await locks.unlock_all(two.inode, 1, flock=False)

        asked = (one_after_the_other(two.here, locked(10, 19)), one_after_the_other(two.there, locked(0, 9)))
        assert sorted(await asyncio.gather(*asked)) == ["given", "told"]

    play(cluster, "deadlock", scene)


def test_an_unlock_that_was_given_up_is_settled_also_if_the_locks_were_lost_since(cluster: LocalCluster) -> None:
    """The owner was forgotten with its locks. The service that hung with the unlock took its next lock for that."""

    async def scene(two: Two) -> None:
        await two.here.acquire(two.inode, 1, locked(), flock=False, wait=False)
        (owner,) = two.here._owners.values()
        meta, requests = owner.locks._context.meta, list[Any]()
        call = meta.call

        async def hang(method: Any, request: Any, **more: Any) -> Any:
            requests.append(request)
            return await asyncio.Event().wait()

        meta.call = hang  # type: ignore[method-assign]
        unlocking = asyncio.create_task(two.here.unlock(two.inode, 1, locked(kind=fcntl.F_UNLCK), flock=False))
        while not requests:
            await asyncio.sleep(0.01)
        meta.call = call  # type: ignore[method-assign]
        await cancel_and_wait(unlocking)
        owner.locks._is_lost = True
        two.here._on_lease_lost()
        await two.here.acquire(two.inode, 1, locked(), flock=False, wait=False)
        await call(methods.LOCK, requests[0], timeout_s=10.0)
        assert await two.refused(two.there, 1, locked())
        await two.here.unlock_all(two.inode, 1, flock=False)
        assert not two.here.holds(two.inode, 1, flock=False)

    play(cluster, "settled", scene)


def test_an_owner_whose_wait_is_being_ended_is_not_forgotten(cluster: LocalCluster) -> None:
    """The next lock was that of another object. The first one took it for its own, and kept the lease for ever."""

    async def scene(two: Two) -> None:
        await two.there.acquire(two.inode, 5, locked(), flock=False, wait=False)
        waiting = asyncio.create_task(two.here.acquire(two.inode, 1, locked(), flock=False, wait=True))
        while not any(owner.locks._is_queued for owner in two.here._owners.values()):
            await asyncio.sleep(0.01)
        (owner,) = two.here._owners.values()
        meta, go = owner.locks._context.meta, asyncio.Event()
        call = meta.call

        async def slow(method: Any, request: Any, **more: Any) -> Any:
            if method is methods.LOCK and request.end_wait:
                await go.wait()
            return await call(method, request, **more)

        meta.call = slow  # type: ignore[method-assign]
        await cancel_and_wait(waiting)
        await two.there.unlock_all(two.inode, 5, flock=False)
        following = asyncio.create_task(two.here.acquire(two.inode, 1, locked(), flock=False, wait=True))
        await asyncio.sleep(0.1)
        go.set()
        await following
        assert list(two.here._owners.values()) == [owner]
        await two.here.unlock_all(two.inode, 1, flock=False)
        assert not two.here.holds(two.inode, 1, flock=False) and two.here._context.lease._holders == 0

    play(cluster, "ending", scene)
