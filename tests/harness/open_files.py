"""Open files of a mount over a cluster in memory, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.cache.validity import Validity
from threefs_mount.files.deferred_closes import CLOSE_DELAY_S
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.wire import meta_pb2 as pb

ROOT = pb.Caller()


def play(scene: Callable[[MemoryFiles, OpenFileTable, int], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles(64 << 10)
        await AsyncFileSystem(files.context).write_file("/a", b"content")
        files.meta.files[b"a"].nlink = 1
        await scene(files, OpenFileTable(files.context, 1 << 20, Validity(1.0)), files.meta.files[b"a"].inode)

    run_virtual(run())


async def closed(files: OpenFileTable, number: int) -> None:
    """And what nobody waits for has been done."""
    ending = files.release(number)
    if ending is not None:
        await ending
    await asyncio.sleep(2 * CLOSE_DELAY_S)


def copy_of(inode: pb.Inode) -> pb.Inode:
    """As over a wire."""
    return pb.Inode.FromString(inode.SerializeToString())
