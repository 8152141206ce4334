"""Inodes without content."""

import pytest

from tests.harness.meta_harness import MetaBench
from threefs.errors import AlreadyExists, InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb

KINDS = (pb.FIFO, pb.SOCKET, pb.CHARACTER_DEVICE, pb.BLOCK_DEVICE, pb.FILE)


@pytest.mark.parametrize("kind", KINDS)
async def test_they_are_named_linked_moved_and_removed_like_files(bench: MetaBench, kind: pb.InodeType) -> None:
    made = await bench.mknod("/a", kind, 0o620, rdev=0x103)
    assert (made.type, made.mode, made.nlink) == (kind, 0o620, 1)
    assert made.rdev == (0x103 if kind in (pb.CHARACTER_DEVICE, pb.BLOCK_DEVICE) else 0)
    assert made.HasField("layout") == (kind == pb.FILE)
    assert (await bench.link("/a", "/b")).nlink == 2
    await bench.rename("/a", "/c")
    await bench.remove("/c", kind=pb.NOT_DIRECTORY)
    assert (await bench.stat("/b")).nlink == 1
    await bench.audit()
    await bench.remove("/b")
    await bench.collect_all()


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    await bench.create("/a")
    with pytest.raises(AlreadyExists):
        await bench.mknod("/a", pb.FIFO)
    with pytest.raises(NotFound):
        await bench.mknod("/gone/a", pb.FIFO)
    for kind in (pb.DIRECTORY, pb.SYMLINK, pb.INODE_TYPE_UNSPECIFIED):
        with pytest.raises(InvalidArgument):
            await bench.mknod("/b", kind)
    await bench.mknod("/fifo", pb.FIFO)
    with pytest.raises(InvalidArgument):
        await bench.open("/fifo", session=b"s" * 16)
    with pytest.raises(InvalidArgument):
        await bench.truncate("/fifo", 1)
