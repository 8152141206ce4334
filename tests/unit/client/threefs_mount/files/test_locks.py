"""Locks of programs on a mount: what the mount hears of their loss."""

import asyncio
import fcntl
import os
from typing import Any

import pytest
from threefs_fuse.requests import Lock
from threefs_mount.files.locks import FileLocks
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.lock_meta import LockMeta
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, play
from threefs.errors import ConnectionLost, LockLost
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
