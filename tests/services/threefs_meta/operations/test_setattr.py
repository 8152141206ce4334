"""Changing attributes."""

import pytest
from threefs_meta.operations.setattr import set_attributes

from tests.support.metadata import MetaBench, at, run
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


async def change(fs: MetaBench, path: str, follow: bool = True, **values: int) -> pb.Inode:
    request = pb.SetAttrRequest(mutation=fs.mutation(), place=at(path), follow=follow)
    for name, value in values.items():
        setattr(request, name, value)
    return (await set_attributes(fs.context, request)).inode


def test_only_what_is_named_changes() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", mode=0o644)).inode
        fs.clock.advance(1)
        changed = await change(fs, "/a", mode=0, uid=5)
        assert (changed.mode, changed.uid, changed.gid, changed.mtime_ns) == (0, 5, 0, made.mtime_ns)
        assert changed.ctime_ns == fs.clock.wall_ns()
        changed = await change(fs, "/a", atime_ns=-1, mtime_ns=(1 << 63) - 1)
        assert (changed.atime_ns, changed.mtime_ns) == (-1, (1 << 63) - 1)
        assert await fs.stat("/a") == changed

    run(test)


def test_times_of_a_directory_hold_until_it_changes() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        assert (await change(fs, "/d", mtime_ns=7)).mtime_ns == 7
        assert (await fs.stat("/d")).mtime_ns == 7
        await change(fs, "/d", mode=0o700)
        assert (await fs.stat("/d")).mtime_ns == 7
        await fs.create("/d/f")
        assert (await fs.stat("/d")).mtime_ns == fs.clock.wall_ns()

    run(test)


def test_links_and_errors() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.symlink("a", "/l")
        await change(fs, "/l", uid=3)
        await change(fs, "/l", follow=False, uid=4)
        assert ((await fs.stat("/a")).uid, (await fs.stat("/l", follow=False)).uid) == (3, 4)
        with pytest.raises(InvalidArgument):
            await change(fs, "/a", mode=0o10000)
        with pytest.raises(NotFound):
            await change(fs, "/gone", mode=0)

    run(test)
