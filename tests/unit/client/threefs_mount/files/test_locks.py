"""Locks of programs on a mount: what the mount hears of their loss."""

import asyncio
import fcntl
import os
from typing import Any

import pytest
from threefs_fuse.requests import Lock
from threefs_mount.files.locks import FileLocks
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness import lock_meta
from tests.harness.lock_meta import LockMeta
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, play
from threefs.errors import ConnectionLost, Locked, LockLost
from threefs.wire import meta_pb2 as pb


async def nothing(_: int) -> None:
    pass


@pytest.mark.parametrize("what", ["the unlock of a part", "the unlock of all", "the end of a wait"])
def test_a_lock_whose_loss_was_not_noticed_before_an_answer_is_an_error_to_its_program(what: str) -> None:
    """The service knew no lock of the mount any more, and the mount took that for a normal unlock. It stored what was
    written under the lock over what the next holder had written (I18)."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        locks, service = FileLocks(memory.context, nothing, files.on_locks_lost), LockMeta()

        async def lock(request: pb.LockRequest) -> Any:
            return await service.answer("Lock", request)

        async def renew(_: pb.RenewLeaseRequest) -> pb.RenewLeaseReply:
            if service.is_away:
                raise ConnectionLost("no answer")
            return pb.RenewLeaseReply(lease=memory.meta.lease)

        memory.meta._lock, memory.meta._renewlease = lock, renew  # type: ignore[attr-defined, assignment, method-assign]
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        for start in (0, 100):
            part = Lock(start, start + 9, fcntl.F_WRLCK, 5)
            await locks.acquire(inode, 1, part, flock=False, wait=False, handle=number)
        await files.write(number, 0, b"STALE")
        service.is_away, memory.context.lease._valid_until = True, 0.0  # as after 5/6 of its length
        if what == "the end of a wait":
            owner = locks._owners[inode, pb.RECORD_LOCK, 1].locks
            owner._is_queued = True
            asking = asyncio.ensure_future(owner.cancel_wait())
        else:
            part = Lock(100, 109, fcntl.F_UNLCK, 5) if "part" in what else Lock(0, (1 << 63) - 1, fcntl.F_UNLCK, 5)
            asking = asyncio.ensure_future(locks.unlock(inode, 1, part, flock=False))
        await asyncio.sleep(1)
        service.is_away, service.holder, memory.meta.lease = False, 1234, 2
        memory.meta.sessions.clear()
        await asking
        await memory.context.lease.renew_now()
        with pytest.raises(LockLost):
            await files.handle(number).sync()
        assert bytes(await files.handle(number).file.read(0, 7)) == b"content"
        assert not locks.holds(inode, 1, flock=False)

    play(scene)


def test_the_next_open_file_with_the_number_of_one_that_is_being_closed_hangs_in_no_call() -> None:
    """Its lock with a wait could not be interrupted before the end of the close, and its unlock waited for that."""

    async def scene(memory: MemoryFiles, _: LockMeta) -> None:
        locks, served, whole = FileLocks(memory.context, nothing), asyncio.Event(), Lock(0, 9, fcntl.F_WRLCK, 5)
        await locks.acquire(5, 1, whole, flock=True, wait=False)
        ending = asyncio.ensure_future(locks.end_handle(5, 7, 1, flock=True, close=served.wait))
        asyncio.get_running_loop().call_later(memory.context.options.timeout_s, served.set)
        await asyncio.sleep(0)
        assert not locks.holds(5, 1, flock=True), "its unlock has nothing to store first"
        await locks.unlock(5, 1, whole, flock=True)
        interrupted = asyncio.create_task(locks.acquire(5, 1, whole, flock=True, wait=True))
        await asyncio.sleep(0.1)
        interrupted.cancel()
        await asyncio.wait([interrupted])
        assert interrupted.cancelled() and not served.is_set(), "neither call has waited for the close"
        await locks.acquire(5, 1, whole, flock=True, wait=True)
        assert ending.done() and locks.holds(5, 1, flock=True)
        await locks.unlock_all(5, 1, flock=True)

    lock_meta.play(scene)


@pytest.mark.parametrize("owner", [1, 2])
def test_a_lock_without_a_wait_does_not_wait_for_a_chain(owner: int) -> None:
    """A file that was closed already could not be stored. Nothing ended the program that asked for its lock meanwhile.
    The kernel may have given the number of the former owner to the next open file."""

    async def scene(memory: MemoryFiles, _: LockMeta) -> None:
        locks, served, whole = FileLocks(memory.context, nothing), asyncio.Event(), Lock(0, 9, fcntl.F_WRLCK, 5)
        await locks.acquire(5, 1, whole, flock=True, wait=False)
        ending = asyncio.ensure_future(locks.end_handle(5, 7, 1, flock=True, close=served.wait))
        asyncio.get_running_loop().call_later(memory.context.options.timeout_s, served.set)
        await asyncio.sleep(0)
        with pytest.raises(Locked):
            await locks.acquire(5, owner, whole, flock=True, wait=False)
        assert not served.is_set(), "it was refused before"
        await ending
        await locks.acquire(5, owner, whole, flock=True, wait=False)
        await locks.unlock_all(5, owner, flock=True)

    lock_meta.play(scene)
