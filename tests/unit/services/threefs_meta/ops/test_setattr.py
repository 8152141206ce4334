"""Changing attributes."""

import pytest
from threefs_meta.ops.setattr import set_attributes

from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import AccessDenied, InvalidArgument, NotFound, NotSupported, PermissionDenied
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


def test_privileges_are_dropped_by_whoever_could_write() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a", mode=0o600)
        await fs.set("/a", uid=5, gid=6)
        await fs.set("/a", mode=0o6754)
        with fs.user(8, 8), pytest.raises(PermissionDenied):
            await fs.set("/a", drop_privileges=True)
        assert (await fs.stat("/a")).mode == 0o6754
        with fs.user(5, 9):
            assert (await fs.set("/a", drop_privileges=True)).mode == 0o754
        before = await fs.stat("/a")
        fs.clock.advance(1)
        with fs.user(8, 8):
            assert await fs.set("/a", drop_privileges=True) == before, "there are none"
        await fs.set("/a", mode=0o4722)
        with fs.user(8, 8):
            after = await fs.set("/a", drop_privileges=True)
        assert after.mode == 0o722 and after.ctime_ns > before.ctime_ns
        await fs.mkdir("/d")
        await fs.set("/d", mode=0o2777)
        assert (await fs.set("/d", drop_privileges=True)).mode == 0o2777, "of a directory it is no privilege"

    run(test)


def test_an_owner_chooses_modes_times_and_its_groups() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a", mode=0o600)
        await fs.set("/a", uid=5, gid=6)
        with fs.user(5, 6, 7):
            assert (await fs.set("/a", mode=0o6755)).mode == 0o6755
            assert (await fs.set("/a", gid=7)).mode == 0o755
            assert (await fs.set("/a", gid=7, uid=5)).gid == 7
            assert (await fs.set("/a", atime_ns=1, mtime_ns=2)).mtime_ns == 2
        await fs.set("/a", gid=9)
        with fs.user(5, 6, 7):
            assert (await fs.set("/a", mode=0o6755)).mode == 0o4755, "it is not in the group of the file"
            assert (await fs.set("/a", gid=9)).gid == 9
        assert (await fs.set("/a", mode=0o6755)).mode == 0o6755
        assert (await fs.set("/a", uid=0)).mode == 0o755

    run(test)


def test_whoever_may_write_may_say_that_it_is_now() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a", mode=0o666)
        fs.clock.advance(1)
        with fs.user(5, 5):
            now = await fs.set("/a", atime_now=True, mtime_now=True)
            assert now.atime_ns == now.mtime_ns == now.ctime_ns == fs.clock.wall_ns()
            for values in ({"atime_now": 1}, {"mtime_now": 1}, {"atime_ns": 1}, {"atime_now": 1, "mtime_ns": 1}):
                with pytest.raises(PermissionDenied):
                    await fs.set("/a", **values)
        await fs.set("/a", mode=0o444)
        with fs.user(5, 5), pytest.raises(AccessDenied):
            await fs.set("/a", atime_now=True, mtime_now=True)

    run(test)


def test_to_set_nothing_is_free() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", mode=0)).inode
        fs.clock.advance(1)
        with fs.user(5, 5):
            assert await fs.set("/a") == made

    run(test)


def test_the_mode_of_a_link_cannot_be_changed() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.symlink("a", "/l")
        with pytest.raises(NotSupported):
            await fs.set("/l", False, mode=0o600)

    run(test)


def test_a_change_of_mode_loses_no_time_of_the_directory() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        fs.clock.advance(5)
        await fs.create("/d/f")
        await fs.set("/d", mode=0o700)
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
