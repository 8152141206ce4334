"""Inodes without content."""

import pytest

from tests.harness.meta_harness import MetaBench, run
from threefs.errors import AlreadyExists, InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb

KINDS = (pb.FIFO, pb.SOCKET, pb.CHARACTER_DEVICE, pb.BLOCK_DEVICE, pb.FILE)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_named_linked_moved_and_removed_like_files(kind: pb.InodeType) -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.mknod("/a", kind, 0o620, rdev=0x103)
        assert (made.type, made.mode, made.nlink) == (kind, 0o620, 1)
        assert made.rdev == (0x103 if kind in (pb.CHARACTER_DEVICE, pb.BLOCK_DEVICE) else 0)
        assert made.HasField("layout") == (kind == pb.FILE)
        assert (await fs.link("/a", "/b")).nlink == 2
        await fs.rename("/a", "/c")
        await fs.remove("/c", kind=pb.NOT_DIRECTORY)
        assert (await fs.stat("/b")).nlink == 1
        await fs.audit()
        await fs.remove("/b")
        await fs.collect_all()

    run(test)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        with pytest.raises(AlreadyExists):
            await fs.mknod("/a", pb.FIFO)
        with pytest.raises(NotFound):
            await fs.mknod("/gone/a", pb.FIFO)
        for kind in (pb.DIRECTORY, pb.SYMLINK, pb.INODE_TYPE_UNSPECIFIED):
            with pytest.raises(InvalidArgument):
                await fs.mknod("/b", kind)
        await fs.mknod("/fifo", pb.FIFO)
        with pytest.raises(InvalidArgument):
            await fs.open("/fifo", session=b"s" * 16)
        with pytest.raises(InvalidArgument):
            await fs.truncate("/fifo", 1)

    run(test)
