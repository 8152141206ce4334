"""From paths to inodes."""

import itertools

import pytest
from threefs_meta.access.credentials import Credentials
from threefs_meta.ops.stat import stat
from threefs_meta.resolve.resolver import Resolution, resolve
from threefs_meta.store.namespace import Namespace

from tests.harness.meta_harness import MetaBench, at, run
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


def test_dots() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b", parents=True)
        a, b, root = await fs.stat("/a"), await fs.stat("/a/b"), await fs.stat("/")
        for path, wanted in {
            "": root, "/": root, ".": root, "..": root, "/../..": root, "/a/..": root, "/a/./b/../": a,
            "/a/b/.": b, "//a//b//": b, "a/../a/b": b, "/a/b/../..": root,
        }.items():  # fmt: skip
            assert (await fs.stat(path)).inode == wanted.inode, path
        with pytest.raises(NotFound):
            await fs.stat("/missing/..")

    run(test)


def test_symbolic_links() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b", parents=True)
        file = (await fs.create("/a/b/file")).inode.inode
        await fs.symlink("b", "/a/relative")
        await fs.symlink("/a", "/a/b/absolute")
        await fs.symlink("../a/./b/file", "/a/tofile")
        await fs.symlink("/", "/a/root")
        await fs.symlink("gone", "/dangling")
        for path in ("/a/relative/file", "/a/b/absolute/b/file", "/a/tofile", "/a/root/a/relative/absolute/b/file"):
            assert (await fs.stat(path)).inode == file, path
        assert (await fs.stat("/a/root")).inode == 1
        assert (await fs.stat("/a/tofile", follow=False)).type == pb.SYMLINK
        assert (await fs.stat("/a/relative/.", follow=False)).type == pb.DIRECTORY
        with pytest.raises(NotFound):
            await fs.stat("/dangling")
        with pytest.raises(NotADirectory):
            await fs.stat("/a/tofile/x")

    run(test)


def test_chains_of_links_end() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/0")
        for number in range(41):
            await fs.symlink(str(number), f"/{number + 1}")
        assert (await fs.stat("/40")).type == pb.FILE
        with pytest.raises(TooManySymlinks):
            await fs.stat("/41")
        await fs.symlink("y", "/x")
        await fs.symlink("x", "/y")
        with pytest.raises(TooManySymlinks):
            await fs.stat("/x")

    run(test)


def test_links_that_grow_end() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.symlink("grow/" + "d/" * 1000, "/grow")
        with pytest.raises((TooManySymlinks, NameTooLong)):
            await fs.stat("/grow")

    run(test)


def test_places_below_an_inode() -> None:
    async def test(fs: MetaBench) -> None:
        a = await fs.mkdir("/a")
        file = (await fs.create("/a/f")).inode
        for place, inode in (
            (at("f", a.inode), file.inode),
            (at("", file.inode), file.inode),
            (at("..", a.inode), 1),
            (at("../a/f", a.inode), file.inode),
        ):
            assert (await stat(fs.context, pb.StatRequest(place=place))).inode.inode == inode
        for place, error in ((at("x", file.inode), NotADirectory), (at("", 999), NotFound), (at("x", 999), NotFound)):
            with pytest.raises(error):
                await stat(fs.context, pb.StatRequest(place=place))

    run(test)


def test_one_step_ends_where_the_long_way_ends() -> None:
    async def end(ns: Namespace, place: pb.Place, actor: Credentials, follow: bool) -> object:
        try:
            return await resolve(ns, place, actor, follow=follow)
        except ThreefsError as error:
            return type(error)

    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b", parents=True)
        await fs.create("/a/f")
        await fs.create("/f")
        for target, link in (("f", "/a/link"), ("b", "/a/down"), ("gone", "/a/dangling"), ("/a", "/link")):
            await fs.symlink(target, link)
        await fs.mkdir("/closed", mode=0o700)
        await fs.create("/closed/f")
        bases = [1, 999, *[(await fs.stat(path)).inode for path in ("/a", "/a/f", "/closed")]]
        steps = [b"f", b"b", b"link", b"down", b"dangling", b"none", b".", b"..", b"b/.", b"f/x", b"n\0", b"n" * 256]
        seen = set()
        for base, step, follow, uid in itertools.product(bases, steps, (False, True), (0, 7)):
            ns, actor = Namespace(fs.engine.begin()), Credentials(uid, uid, is_super=not uid)
            short = await end(ns, pb.Place(base=base, path=step), actor, follow)
            assert short == await end(ns, pb.Place(base=base, path=b"./" + step), actor, follow), (base, step, uid)
            seen.add(short if isinstance(short, type) else Resolution)
        assert seen == {Resolution, AccessDenied, NotADirectory, NotFound, InvalidArgument, NameTooLong}

    run(test)
