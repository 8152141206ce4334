"""Which attributes are asked for, and of what; the kernel's side is in test_vfs.py."""

import asyncio
import errno
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_fuse.requests import Caller
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.xattrs import Xattrs

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.wire import meta_pb2 as pb

USER = Caller(7, 7, 1)


class Bench:
    def __init__(self) -> None:
        memory = MemoryFiles()
        self.asked: list[tuple[Any, Caller]] = []
        self.files = OpenFileTable(memory.context, 1 << 20, Validity(1.0))
        self.xattrs = Xattrs(memory.context, self.files, self._call, self._change)
        self.inode = pb.Inode(inode=5, nlink=1)

    async def _call(self, method: Any, request: Any, caller: Caller) -> Any:
        self.asked.append((request, caller))
        return SimpleNamespace(value=b"value", names=[b"user.a"])

    async def _change(self, method: Any, request: Any, caller: Caller, inode: int) -> Any:
        assert inode == 5
        self.asked.append((request, caller))
        return pb.InodeReply(inode=self.inode)


async def test_what_cannot_be_there_is_not_asked_for() -> None:
    bench = Bench()
    assert await cast(Any, bench.xattrs.get(5, USER, b"user.a")) == b"value"
    asked_s = bench.files._context.clock.monotonic()
    bench.files.overlay_local(bench.inode, asked_s)
    with pytest.raises(OSError) as caught:
        bench.xattrs.get(5, USER, b"user.a")
    assert caught.value.errno == errno.ENODATA and len(bench.asked) == 1
    await asyncio.sleep(0.1)
    await bench.xattrs.set(5, USER, b"user.a", b"value", os.XATTR_CREATE)
    bench.files.overlay_local(bench.inode, asked_s)  # a late answer
    assert await cast(Any, bench.xattrs.get(5, USER, b"user.a")) == b"value"
    assert await bench.xattrs.list(5, USER) == [b"user.a"]


def test_changes_are_of_the_inode_with_the_name_unless_the_file_is_open() -> None:
    async def play() -> None:
        bench = Bench()
        await bench.xattrs.set(5, USER, b"user.a", b"value", os.XATTR_REPLACE)
        await bench.xattrs.remove(5, USER, b"user.a")
        await bench.xattrs.remove(5, USER, b"security.capability")
        (put, user), (removed, _), (_, kernel) = bench.asked
        assert put.place.named and removed.place.named and put.replace and not put.create
        assert user == USER and kernel.uid == 0, "who writes may not take it away, but the kernel does then"
        bench.files._files[5] = cast(Any, SimpleNamespace(apply_own_change=lambda inode: None))
        await bench.xattrs.set(5, USER, b"user.a", b"value", 0)
        assert not bench.asked[-1][0].place.named

    run_virtual(play())


def test_capabilities_are_set_behind_the_writes_that_are_not_reported_yet() -> None:
    """Their report takes away the capabilities that the file has then."""

    async def play() -> None:
        bench = Bench()

        async def sync() -> None:
            bench.asked.append(("sync", USER))

        bench.files._files[5] = cast(Any, SimpleNamespace(sync=sync, apply_own_change=lambda inode: None))
        for name in (b"user.a", b"security.capability"):
            await bench.xattrs.set(5, USER, name, b"value", 0)
        assert [asked if asked == "sync" else asked.name for asked, _ in bench.asked] == [
            b"user.a",
            "sync",
            b"security.capability",
        ]

    run_virtual(play())
