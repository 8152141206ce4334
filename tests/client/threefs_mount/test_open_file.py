import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.open_file import SEND_BYTES, OpenFile, written

from tests.support.memory_cluster import MemoryFiles
from threefs.budget import ByteBudget
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10


def play(scene: Callable[[MemoryFiles, OpenFile], Awaitable[None]], **options: float) -> None:
    async def run() -> None:
        files = MemoryFiles(CHUNK, **options)
        fs = AsyncFileSystem(files.link)
        await fs.write_file("/a", b"")
        handle = await fs.open("/a", "r+b")
        file = OpenFile(files.link, files.meta.files[b"a"], ByteBudget(64 << 20))
        await file.begin(files.meta.files[b"a"], handle.handle._session, handle.handle._lease)
        await scene(files, file)

    asyncio.run(run())


def test_what_is_held_can_be_read_and_is_sent_before() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(10, b"abc")
        assert file.length == 13 and file.dirty
        assert bytes(await file.read(0, 100)) == b"\0" * 10 + b"abc"
        assert bytes(await file.read(13, 100)) == b""

    play(scene)


def test_settled_is_seen_by_others() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 100)
        assert files.meta.files[b"a"].length == 0
        shown = file.shown(files.meta.files[b"a"].__deepcopy__({}))
        assert shown.length == 100 and shown.mtime_ns > 0
        await file.settle()
        assert files.meta.files[b"a"].length == 100 and not file.dirty

    play(scene)


def test_much_is_sent_while_it_is_written() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        data = bytes(range(256)) * (SEND_BYTES // 256)
        for number in range(3):
            await file.write(number * SEND_BYTES, data)
        assert file._round is not None
        await file.settle()
        assert bytes(await file.read(SEND_BYTES - 1, 2)) == b"\xff\0"
        assert file.length == 3 * SEND_BYTES

    play(scene)


def test_a_truncate_comes_behind_the_writes_before_it() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"x" * 1000)
        shown = await file.truncate(10, pb.Caller())
        assert shown.length == 10 and file.length == 10
        await file.settle()
        assert files.meta.files[b"a"].length == 10
        await file.truncate(20, pb.Caller())
        assert bytes(await file.read(0, 100)) == b"x" * 10 + b"\0" * 10

    play(scene)


def test_lost_bytes_are_told_once() -> None:
    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        files.storage.down |= {node.address for node in files.cluster.routing.nodes.values()}
        await file.write(0, b"x")
        await file.settle_unseen()
        with pytest.raises(ThreefsError):
            await file.settle()
        await file.settle()

    play(scene, timeout_s=0.05)


def test_what_a_write_leaves_of_the_permissions() -> None:
    assert written(0o6755) == 0o755
    assert written(0o2644) == 0o2644  # no set-group-id for execution: a mark of something else
    assert written(0o4644) == 0o644
