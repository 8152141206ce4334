import os
import stat
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from threefs_client import credentials
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.metadata.namespace import requested_layout

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import (
    AccessDenied,
    Corrupt,
    FileTooLarge,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ProtocolError,
)
from threefs.wire import meta_pb2 as pb


class Meta:
    """Answers each call with what a function makes of the request."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        self._answer = answer
        self.requests: list[Any] = []

    async def answer(self, name: str, request: Any) -> Any:
        self.requests.append(request)
        return self._answer(name, request)


def go(
    answer: Callable[[str, Any], Any], scene: Callable[[AsyncFileSystem], Coroutine[Any, Any, Any]]
) -> tuple[Any, list[Any]]:
    async def run() -> tuple[Any, list[Any]]:
        files = MemoryFiles()
        meta = Meta(answer)
        files.peers.meta = meta  # type: ignore[assignment]
        return await scene(AsyncFileSystem(files.context)), meta.requests

    return run_virtual(run())


DIRECTORY = pb.Inode(inode=5, type=pb.DIRECTORY)


def one(_name: str, _request: Any) -> pb.InodeReply:
    return pb.InodeReply(inode=DIRECTORY)


def test_everything_is_asked_on_behalf_of_the_user_that_was_named() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        user = fs.acting_as(7, 8, [9, 10])
        await user.mkdir("/d")
        await user.stat("/d")
        await fs.mkdir("/d")
        for uid, gid, groups in ((-1, 0, []), (0, 1 << 32, []), (0, 0, [-1]), (0, 0, [1] * 1025)):
            with pytest.raises(InvalidArgument):
                fs.acting_as(uid, gid, groups)

    _, (mkdir, stat, own) = go(one, scene)
    assert mkdir.caller == stat.caller == pb.Caller(uid=7, gid=8, groups=[9, 10])
    assert own.caller == credentials.ROOT and own.HasField("caller")


def test_changes_carry_what_was_asked_for() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        await fs.mkdir("/d", mode=0o700, parents=True)
        await fs.rename("/a", "/b", replace=False)
        await fs.symlink("to", "/l")
        await fs.hard_link("/a", "/h")
        await fs.chmod("/a", 0o644, follow=False)
        await fs.chown("/a", -1, 7)
        await fs.utime("/a", 1, 2)
        await fs.truncate("/a", 9)
        await fs.set_layout("/d", chunk_bytes=1 << 16, stripe=2)

    _, requests = go(one, scene)
    mkdir, rename, symlink, link, chmod, chown, utime, truncate, layout = requests
    assert len({request.mutation.request for request in requests}) == 9
    assert (mkdir.place.path, mkdir.mode, mkdir.parents) == (b"/d", 0o700, True)
    assert (rename.source.path, rename.destination.path, rename.no_replace) == (b"/a", b"/b", True)
    assert (symlink.place.path, symlink.target) == (b"/l", b"to")
    assert (link.source.path, link.destination.path) == (b"/a", b"/h")
    assert (chmod.mode, chmod.follow, chmod.HasField("uid")) == (0o644, False, False)
    assert (chown.HasField("uid"), chown.gid, chown.HasField("mode")) == (False, 7, False)
    assert (utime.atime_ns, utime.mtime_ns) == (1, 2)
    assert truncate.length == 9
    assert (layout.layout.chunk_bytes, layout.layout.stripe) == (1 << 16, 2)


def test_removals_say_what_they_expect() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        await fs.remove("/a", recursive=True)
        await fs.unlink("/a")
        await fs.rmdir("/a")

    _, requests = go(lambda *_: pb.RemoveReply(), scene)
    assert [(request.kind, request.recursive) for request in requests] == [
        (pb.ANYTHING, True),
        (pb.NOT_DIRECTORY, False),
        (pb.ONLY_DIRECTORY, False),
    ]


def test_senseless_arguments_are_refused_before_anything_is_sent() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        with pytest.raises(InvalidArgument):
            await fs.chmod("/a", 0o10000)
        with pytest.raises(InvalidArgument):
            await fs.mkdir("/a", mode=-1)
        with pytest.raises(InvalidArgument):
            await fs.chown("/a", -2, 0)
        with pytest.raises(InvalidArgument):
            await fs.utime("/a", 1 << 63, 0)
        with pytest.raises(InvalidArgument):
            await fs.truncate("/a", -1)
        with pytest.raises(FileTooLarge):
            await fs.truncate("/a", 1 << 60)
        with pytest.raises(InvalidArgument):
            await fs.set_layout("/a", chunk_bytes=5)
        with pytest.raises(InvalidArgument):
            await fs.stat("a\0b")

    _, requests = go(one, scene)
    assert not requests


def test_listings_follow_pages_to_the_end() -> None:
    names = [b"%02d" % number for number in range(10)]

    def answer(_: str, request: pb.ListRequest) -> pb.ListReply:
        rest = [name for name in names if name > request.after]
        return pb.ListReply(entries=[pb.Entry(name=name, type=pb.FILE) for name in rest[:3]], more=len(rest) > 3)

    async def scene(fs: AsyncFileSystem) -> list[str]:
        return [entry.name async for entry in fs.list("/d")]

    found, requests = go(answer, scene)
    assert found == [name.decode() for name in names]
    assert len(requests) == 4


def test_many_stats_are_one_call_and_only_missing_ones_are_none() -> None:
    def answer(_: str, request: pb.BatchStatRequest) -> pb.BatchStatReply:
        code = {b"/none": NotFound.code, b"/no": PermissionDenied.code}
        errors = [
            pb.StatError(number=number, code=code[path]) for number, path in enumerate(request.paths) if path in code
        ]
        return pb.BatchStatReply(inodes=[DIRECTORY] * len(request.paths), errors=errors)

    async def scene(fs: AsyncFileSystem) -> None:
        assert [found is not None for found in await fs.stat_many(["/a", "/none", "/a"])] == [True, False, True]
        assert await fs.exists("/a")
        assert not await fs.exists("/none")
        with pytest.raises(PermissionDenied, match="/no"):
            await fs.stat_many(["/a", "/no"])
        assert await fs.stat_many([]) == []

    assert len(go(answer, scene)[1]) == 4


def test_answers_that_do_not_belong_to_the_paths_are_not_believed() -> None:
    def answer(_: str, request: pb.BatchStatRequest) -> pb.BatchStatReply:
        if request.paths == [b"/few"]:
            return pb.BatchStatReply()
        return pb.BatchStatReply(inodes=[DIRECTORY], errors=[pb.StatError(number=1, code=NotFound.code)])

    async def scene(fs: AsyncFileSystem) -> None:
        for path in ("/few", "/beyond"):
            with pytest.raises(ProtocolError):
                await fs.stat_many([path])

    go(answer, scene)


def test_readlink_of_something_else() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        with pytest.raises(InvalidArgument, match="/d is not a symbolic link"):
            await fs.readlink("/d")

    go(one, scene)


def test_wanted_layout() -> None:
    assert requested_layout(0, 0) is None
    assert requested_layout(1 << 16, 0) == pb.Layout(chunk_bytes=1 << 16)
    with pytest.raises(InvalidArgument):
        requested_layout(0, -1)


def test_a_user_removes_a_tree_piece_by_piece() -> None:
    tree = {b"/top": [("d", pb.DIRECTORY), ("f", pb.FILE)], b"/top/d": [("l", pb.SYMLINK)]}

    def answer(name: str, request: Any) -> Any:
        if name == "Stat":
            return pb.InodeReply(inode=pb.Inode(type=pb.DIRECTORY if request.place.path in tree else pb.SYMLINK))
        if name == "List":
            entries = tree[request.place.path]
            return pb.ListReply(entries=[pb.Entry(name=e.encode(), type=kind) for e, kind in entries])
        return pb.InodeReply(inode=DIRECTORY) if name == "Access" else pb.RemoveReply()

    async def scene(fs: AsyncFileSystem) -> None:
        await fs.remove("/top", recursive=True)
        await fs.acting_as(0, 0).remove("/top", recursive=True)
        await fs.acting_as(5, 5).remove("/top", recursive=True)
        await fs.acting_as(5, 5).remove("/file", recursive=True)

    _, requests = go(answer, scene)
    removals = [(r.place.path, r.recursive, r.kind) for r in requests if isinstance(r, pb.RemoveRequest)]
    assert removals == [
        (b"/top", True, pb.ANYTHING),
        (b"/top", True, pb.ANYTHING),
        (b"/top/f", False, pb.NOT_DIRECTORY),
        (b"/top/d/l", False, pb.NOT_DIRECTORY),
        (b"/top/d", False, pb.ONLY_DIRECTORY),
        (b"/top", False, pb.ONLY_DIRECTORY),
        (b"/file", False, pb.NOT_DIRECTORY),
    ]


def test_nodes_exchanges_access_and_now() -> None:
    async def scene(fs: AsyncFileSystem) -> None:
        await fs.mknod("/f", stat.S_IFIFO | 0o600)
        await fs.mknod("/d", stat.S_IFCHR | 0o640, 0x103)
        await fs.exchange("/a", "/b")
        await fs.access("/a", os.R_OK | os.X_OK)
        await fs.touch("/a", follow=False)
        with pytest.raises(InvalidArgument):
            await fs.mknod("/f", 0o170000)

    _, (fifo, device, exchange, access, touch) = go(one, scene)
    assert (fifo.type, fifo.mode, fifo.rdev) == (pb.FIFO, 0o600, 0)
    assert (device.type, device.mode, device.rdev) == (pb.CHARACTER_DEVICE, 0o640, 0x103)
    assert exchange.exchange and not exchange.no_replace
    assert (access.wanted, access.follow) == (5, True)
    assert touch.atime_now and touch.mtime_now and not touch.HasField("mtime_ns")


def test_extended_attributes() -> None:
    def answer(name: str, request: Any) -> Any:
        return {
            "GetXattr": pb.GetXattrReply(value=b"\0v"),
            "ListXattr": pb.ListXattrReply(names=[b"user.a", b"user.\xff"]),
        }.get(name, pb.InodeReply(inode=DIRECTORY))

    async def scene(fs: AsyncFileSystem) -> None:
        assert await fs.getxattr("/a", "user.a") == b"\0v"
        assert await fs.listxattr("/a", follow=False) == ["user.a", "user.\udcff"]
        await fs.setxattr("/a", "user.\udcff", b"value", create=True)
        await fs.removexattr("/a", b"user.a")

    _, (get, listing, put, remove) = go(answer, scene)
    assert (get.name, get.follow, listing.follow) == (b"user.a", True, False)
    assert (put.name, put.value, put.create, put.replace) == (b"user.\xff", b"value", True, False)
    assert remove.name == b"user.a" and remove.mutation.request != put.mutation.request


@pytest.mark.parametrize("denied", [b"/", b"/top", b"/top/d"])
def test_a_user_that_may_not_remove_all_of_a_tree_removes_nothing(denied: bytes) -> None:
    tree = {b"/top": [("a", pb.FILE), ("d", pb.DIRECTORY), ("empty", pb.DIRECTORY)], b"/top/d": [("f", pb.FILE)]}

    def answer(name: str, request: Any) -> Any:
        if name == "Stat":
            return pb.InodeReply(inode=DIRECTORY)
        if name == "Access":
            assert request.place.path != b"/top/empty", "nobody changes that one"
            if request.place.path == denied:
                raise AccessDenied(denied.decode())
            return pb.InodeReply(inode=DIRECTORY)
        if name == "List":
            entries = tree.get(request.place.path, [])
            return pb.ListReply(entries=[pb.Entry(name=e.encode(), type=kind) for e, kind in entries])
        return pb.RemoveReply()

    async def scene(fs: AsyncFileSystem) -> None:
        with pytest.raises(AccessDenied):
            await fs.acting_as(5, 5).remove("/top", recursive=True)

    _, requests = go(answer, scene)
    assert not [request for request in requests if isinstance(request, pb.RemoveRequest)]


def test_what_others_remove_of_a_tree_meanwhile_keeps_none_of_the_rest() -> None:
    """The rest stayed. `trash empty` took the error for that of a whole tree that is gone, and ended well."""
    tree = {b"/top": [("a", pb.FILE), ("b", pb.FILE), ("d", pb.DIRECTORY), ("e", pb.DIRECTORY)]}

    def answer(name: str, request: Any) -> Any:
        if name in ("Stat", "Access"):
            return pb.InodeReply(inode=DIRECTORY)
        if name == "List":
            entries = tree.get(request.place.path, [("x", pb.FILE)])
            return pb.ListReply(entries=[pb.Entry(name=e.encode(), type=kind) for e, kind in entries])
        if request.place.path in (b"/top/a", b"/top/d/x", b"/top/d"):
            raise NotFound("it was put back")
        return pb.RemoveReply()

    _, requests = go(answer, lambda fs: fs.acting_as(5, 5).remove("/top", recursive=True))
    removed = [request.place.path for request in requests if isinstance(request, pb.RemoveRequest)]
    assert removed == [b"/top/a", b"/top/b", b"/top/d/x", b"/top/e/x", b"/top/e", b"/top/d", b"/top"]


def test_a_damaged_record_of_the_trash_keeps_nobody_from_emptying_it() -> None:
    def answer(name: str, request: Any) -> Any:
        if name == "ListTrash":
            if not request.only:
                raise Corrupt("the record of an item")
            return pb.ListTrashReply()
        if name == "List":
            return pb.ListReply(entries=[pb.Entry(name=b"a", type=pb.FILE)])
        return pb.RemoveReply()

    assert go(answer, lambda fs: fs.trash.empty(5))[0] == 1


def test_the_usage_of_a_tree_leaves_out_what_is_removed_meanwhile() -> None:
    def answer(name: str, request: Any) -> Any:
        if name == "Stat":
            return one(name, request)
        if request.place.path != b"/d":
            raise NotFound("it is removed")
        inodes = [pb.Inode(inode=6, type=pb.DIRECTORY), pb.Inode(inode=7, type=pb.FILE, length=3)]
        entries = [pb.Entry(name=b"%d" % i.inode, inode=i.inode, type=i.type, attributes=i) for i in inodes]
        return pb.ListReply(entries=entries)

    usage, _ = go(answer, lambda fs: fs.usage("/d"))
    assert (usage.files, usage.directories, usage.length) == (1, 2, 3)
    with pytest.raises(NotFound):
        go(answer, lambda fs: fs.usage("/e"))
