"""New inodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_meta.access.credentials import Credentials
from threefs_meta.file.inode_factory import InodeSpec, check_new_name, check_vacant, new_inode
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.rename import rename
from threefs_meta.ops.symlink import symlink
from threefs_meta.resolve.resolver import Resolution

from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


def test_a_new_inode_has_one_name_and_one_time() -> None:
    async def test(fs: MetaBench) -> None:
        inode = await new_inode(fs.context, pb.Inode(), InodeSpec(pb.FILE, Credentials(3, 4), 0o666, 0o066))
        assert (inode.mode, inode.uid, inode.gid, inode.nlink) == (0o600, 3, 4, 1)
        assert {inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.birth_ns} == {fs.clock.wall_ns()}

    run(test)


def test_where_nothing_can_be_made() -> None:
    check_vacant(Resolution(1, b"a", None), at("/a"))
    with pytest.raises(NotFound):
        check_vacant(Resolution(1, b"a", None, (b"b",)), at("/a/b"))
    check_new_name(Resolution(1, b"a", None), at("/a"))
    with pytest.raises(InvalidArgument):
        check_new_name(Resolution(1, b"", None), at("/"))


def test_missing_directories_are_made_by_several_at_once() -> None:
    async def test(fs: MetaBench) -> None:
        await asyncio.gather(*(fs.create(f"/a/b/c/{n}", parents=True) for n in range(20)))
        assert len(await fs.names("/a/b/c")) == 20

    run(test)


def test_nothing_is_made_in_a_directory_that_was_removed() -> None:
    async def test(fs: MetaBench) -> None:
        gone = await fs.mkdir("/gone/inner", parents=True)
        await fs.create("/file")
        await fs.remove("/gone", recursive=True)
        top = gone.parent
        place = at("x", top)
        requests: list[tuple[Callable[[Any, Any], Awaitable[Any]], Any]] = [
            (create, pb.CreateRequest(mutation=fs.mutation(), place=place)),
            (mkdir, pb.MkdirRequest(mutation=fs.mutation(), place=place)),
            (symlink, pb.SymlinkRequest(mutation=fs.mutation(), place=place, target=b"t")),
            (link, pb.LinkRequest(mutation=fs.mutation(), source=at("/file"), destination=place)),
            (rename, pb.RenameRequest(mutation=fs.mutation(), source=at("/file"), destination=place)),
        ]
        for operation, request in requests:
            with pytest.raises(NotFound):
                await operation(fs.context, request)

    run(test)
