"""From paths to inodes."""

import asyncio
import itertools

import pytest
from threefs_meta.access.credentials import Credentials
from threefs_meta.ops.stat import stat
from threefs_meta.resolve.resolver import MAX_STEPS, Resolution, Turns, resolve
from threefs_meta.store.namespace import Namespace

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import (
    AccessDenied,
    InvalidArgument,
    NameTooLong,
    NotADirectory,
    NotFound,
    ThreefsError,
    TooManySymlinks,
)
from threefs.wire import meta_pb2 as pb


async def test_dots(bench: MetaBench) -> None:
    await bench.mkdir("/a/b", parents=True)
    a, b, root = await bench.stat("/a"), await bench.stat("/a/b"), await bench.stat("/")
    for path, wanted in {
        "": root, "/": root, ".": root, "..": root, "/../..": root, "/a/..": root, "/a/./b/../": a,
        "/a/b/.": b, "//a//b//": b, "a/../a/b": b, "/a/b/../..": root,
    }.items():  # fmt: skip
        assert (await bench.stat(path)).inode == wanted.inode, path
    with pytest.raises(NotFound):
        await bench.stat("/missing/..")


async def test_symbolic_links(bench: MetaBench) -> None:
    await bench.mkdir("/a/b", parents=True)
    file = (await bench.create("/a/b/file")).inode.inode
    await bench.symlink("b", "/a/relative")
    await bench.symlink("/a", "/a/b/absolute")
    await bench.symlink("../a/./b/file", "/a/tofile")
    await bench.symlink("/", "/a/root")
    await bench.symlink("gone", "/dangling")
    for path in ("/a/relative/file", "/a/b/absolute/b/file", "/a/tofile", "/a/root/a/relative/absolute/b/file"):
        assert (await bench.stat(path)).inode == file, path
    assert (await bench.stat("/a/root")).inode == 1
    assert (await bench.stat("/a/tofile", follow=False)).type == pb.SYMLINK
    assert (await bench.stat("/a/relative/.", follow=False)).type == pb.DIRECTORY
    with pytest.raises(NotFound):
        await bench.stat("/dangling")
    with pytest.raises(NotADirectory):
        await bench.stat("/a/tofile/x")


async def test_chains_of_links_end(bench: MetaBench) -> None:
    await bench.create("/0")
    for number in range(41):
        await bench.symlink(str(number), f"/{number + 1}")
    assert (await bench.stat("/40")).type == pb.FILE
    with pytest.raises(TooManySymlinks):
        await bench.stat("/41")
    await bench.symlink("y", "/x")
    await bench.symlink("x", "/y")
    with pytest.raises(TooManySymlinks):
        await bench.stat("/x")


async def test_links_that_grow_end(bench: MetaBench) -> None:
    await bench.symlink("grow/" + "d/" * 1000, "/grow")
    with pytest.raises((TooManySymlinks, NameTooLong)):
        await bench.stat("/grow")


async def test_places_below_an_inode(bench: MetaBench) -> None:
    a = await bench.mkdir("/a")
    file = (await bench.create("/a/f")).inode
    for place, inode in (
        (at("f", a.inode), file.inode),
        (at("", file.inode), file.inode),
        (at("..", a.inode), 1),
        (at("../a/f", a.inode), file.inode),
    ):
        assert (await stat(bench.context, pb.StatRequest(place=place))).inode.inode == inode
    for place, error in ((at("x", file.inode), NotADirectory), (at("", 999), NotFound), (at("x", 999), NotFound)):
        with pytest.raises(error):
            await stat(bench.context, pb.StatRequest(place=place))


async def test_one_step_ends_where_the_long_way_ends(bench: MetaBench) -> None:
    async def end(ns: Namespace, place: pb.Place, actor: Credentials, follow: bool) -> object:
        try:
            return await resolve(ns, place, actor, follow=follow)
        except ThreefsError as error:
            return type(error)

    await bench.mkdir("/a/b", parents=True)
    await bench.create("/a/f")
    await bench.create("/f")
    for target, link in (("f", "/a/link"), ("b", "/a/down"), ("gone", "/a/dangling"), ("/a", "/link")):
        await bench.symlink(target, link)
    await bench.mkdir("/closed", mode=0o700)
    await bench.create("/closed/f")
    bases = [1, 999, *[(await bench.stat(path)).inode for path in ("/a", "/a/f", "/closed")]]
    steps = [b"f", b"b", b"link", b"down", b"dangling", b"none", b".", b"..", b"b/.", b"f/x", b"n\0", b"n" * 256]
    seen = set()
    for base, step, follow, uid in itertools.product(bases, steps, (False, True), (0, 7)):
        ns, actor = Namespace(bench.engine.begin()), Credentials(uid, uid, is_super=not uid)
        short = await end(ns, pb.Place(base=base, path=step), actor, follow)
        assert short == await end(ns, pb.Place(base=base, path=b"./" + step), actor, follow), (base, step, uid)
        seen.add(short if isinstance(short, type) else Resolution)
    assert seen == {Resolution, AccessDenied, NotADirectory, NotFound, InvalidArgument, NameTooLong}


async def test_long_work_lets_others_go_on_and_short_work_does_not_stop() -> None:
    turns = Turns()
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async def work(steps: int) -> int:
        before = others
        for _ in range(steps):
            if turns.due():
                await turns.give()
        return others - before

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    assert await work(MAX_STEPS - 1) == 0
    assert await work(1) == 1, "it counts on from one call to the next"
    assert await work(10 * MAX_STEPS) == 10
    task.cancel()
