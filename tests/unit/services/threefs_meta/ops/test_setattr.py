"""Changing attributes."""

import pytest
from threefs_meta.ops.setattr import set_attributes

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AccessDenied, InvalidArgument, NotFound, NotSupported, PermissionDenied
from threefs.wire import meta_pb2 as pb


async def change(fs: MetaBench, path: str, follow: bool = True, **values: int) -> pb.Inode:
    request = pb.SetAttrRequest(mutation=fs.mutation(), place=at(path), follow=follow)
    for name, value in values.items():
        setattr(request, name, value)
    return (await set_attributes(fs.context, request)).inode


async def test_only_what_is_named_changes(bench: MetaBench) -> None:
    made = (await bench.create("/a", mode=0o644)).inode
    bench.clock.advance(1)
    changed = await change(bench, "/a", mode=0, uid=5)
    assert (changed.mode, changed.uid, changed.gid, changed.mtime_ns) == (0, 5, 0, made.mtime_ns)
    assert changed.ctime_ns == bench.clock.wall_ns()
    changed = await change(bench, "/a", atime_ns=-1, mtime_ns=(1 << 63) - 1)
    assert (changed.atime_ns, changed.mtime_ns) == (-1, (1 << 63) - 1)
    assert await bench.stat("/a") == changed


async def test_times_of_a_directory_hold_until_it_changes(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert (await change(bench, "/d", mtime_ns=7)).mtime_ns == 7
    assert (await bench.stat("/d")).mtime_ns == 7
    await change(bench, "/d", mode=0o700)
    assert (await bench.stat("/d")).mtime_ns == 7
    await bench.create("/d/f")
    assert (await bench.stat("/d")).mtime_ns == bench.clock.wall_ns()


async def test_privileges_may_be_dropped_by_every_user_that_could_write(bench: MetaBench) -> None:
    await bench.create("/a", mode=0o600)
    await bench.set("/a", uid=5, gid=6)
    await bench.set("/a", mode=0o6754)
    with bench.user(8, 8), pytest.raises(PermissionDenied):
        await bench.set("/a", drop_privileges=True)
    assert (await bench.stat("/a")).mode == 0o6754
    with bench.user(5, 9):
        assert (await bench.set("/a", drop_privileges=True)).mode == 0o754
    before = await bench.stat("/a")
    bench.clock.advance(1)
    with bench.user(8, 8):
        assert await bench.set("/a", drop_privileges=True) == before, "there are none"
    await bench.set("/a", mode=0o4722)
    with bench.user(8, 8):
        after = await bench.set("/a", drop_privileges=True)
    assert after.mode == 0o722 and after.ctime_ns > before.ctime_ns
    await bench.mkdir("/d")
    await bench.set("/d", mode=0o2777)
    assert (await bench.set("/d", drop_privileges=True)).mode == 0o2777, "of a directory it is no privilege"


async def test_an_owner_chooses_modes_times_and_its_groups(bench: MetaBench) -> None:
    await bench.create("/a", mode=0o600)
    await bench.set("/a", uid=5, gid=6)
    with bench.user(5, 6, 7):
        assert (await bench.set("/a", mode=0o6755)).mode == 0o6755
        assert (await bench.set("/a", gid=7)).mode == 0o755
        assert (await bench.set("/a", gid=7, uid=5)).gid == 7
        assert (await bench.set("/a", atime_ns=1, mtime_ns=2)).mtime_ns == 2
    await bench.set("/a", gid=9)
    with bench.user(5, 6, 7):
        assert (await bench.set("/a", mode=0o6755)).mode == 0o4755, "it is not in the group of the file"
        assert (await bench.set("/a", gid=9)).gid == 9
    assert (await bench.set("/a", mode=0o6755)).mode == 0o6755
    assert (await bench.set("/a", uid=0)).mode == 0o755


async def test_a_user_that_may_write_may_set_the_present_time(bench: MetaBench) -> None:
    await bench.create("/a", mode=0o666)
    bench.clock.advance(1)
    with bench.user(5, 5):
        now = await bench.set("/a", atime_now=True, mtime_now=True)
        assert now.atime_ns == now.mtime_ns == now.ctime_ns == bench.clock.wall_ns()
        for values in ({"atime_now": 1}, {"mtime_now": 1}, {"atime_ns": 1}, {"atime_now": 1, "mtime_ns": 1}):
            with pytest.raises(PermissionDenied):
                await bench.set("/a", **values)
    await bench.set("/a", mode=0o444)
    with bench.user(5, 5), pytest.raises(AccessDenied):
        await bench.set("/a", atime_now=True, mtime_now=True)


async def test_to_set_nothing_is_free(bench: MetaBench) -> None:
    made = (await bench.create("/a", mode=0)).inode
    bench.clock.advance(1)
    with bench.user(5, 5):
        assert await bench.set("/a") == made


async def test_the_mode_of_a_link_cannot_be_changed(bench: MetaBench) -> None:
    await bench.symlink("a", "/l")
    with pytest.raises(NotSupported):
        await bench.set("/l", False, mode=0o600)


async def test_a_change_of_mode_loses_no_time_of_the_directory(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    bench.clock.advance(5)
    await bench.create("/d/f")
    await bench.set("/d", mode=0o700)
    assert (await bench.stat("/d")).mtime_ns == bench.clock.wall_ns()


async def test_links_and_errors(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.symlink("a", "/l")
    await change(bench, "/l", uid=3)
    await change(bench, "/l", follow=False, uid=4)
    assert ((await bench.stat("/a")).uid, (await bench.stat("/l", follow=False)).uid) == (3, 4)
    with pytest.raises(InvalidArgument):
        await change(bench, "/a", mode=0o10000)
    with pytest.raises(NotFound):
        await change(bench, "/gone", mode=0)
