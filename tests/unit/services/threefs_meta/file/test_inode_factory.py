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

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


async def test_a_new_inode_has_one_name_and_one_time(bench: MetaBench) -> None:
    await bench.context.allocator.refill()
    ns = bench.context.namespace(bench.engine.begin())
    inode = await new_inode(bench.context, ns, pb.Inode(), InodeSpec(pb.FILE, Credentials(3, 4), 0o666, 0o066))
    assert (inode.mode, inode.uid, inode.gid, inode.nlink) == (0o600, 3, 4, 1)
    assert {inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.birth_ns} == {bench.clock.wall_ns()}


def test_where_nothing_can_be_made() -> None:
    check_vacant(Resolution(1, b"a", None), at("/a"))
    with pytest.raises(NotFound):
        check_vacant(Resolution(1, b"a", None, (b"b",)), at("/a/b"))
    check_new_name(Resolution(1, b"a", None), at("/a"))
    with pytest.raises(InvalidArgument):
        check_new_name(Resolution(1, b"", None), at("/"))


async def test_missing_directories_are_made_by_several_at_once(bench: MetaBench) -> None:
    await asyncio.gather(*(bench.create(f"/a/b/c/{n}", parents=True) for n in range(20)))
    assert len(await bench.names("/a/b/c")) == 20


async def test_nothing_is_made_in_a_directory_that_was_removed(bench: MetaBench) -> None:
    gone = await bench.mkdir("/gone/inner", parents=True)
    await bench.create("/file")
    await bench.remove("/gone", recursive=True)
    top = gone.parent
    place = at("x", top)
    requests: list[tuple[Callable[[Any, Any], Awaitable[Any]], Any]] = [
        (create, pb.CreateRequest(mutation=bench.mutation(), place=place)),
        (mkdir, pb.MkdirRequest(mutation=bench.mutation(), place=place)),
        (symlink, pb.SymlinkRequest(mutation=bench.mutation(), place=place, target=b"t")),
        (link, pb.LinkRequest(mutation=bench.mutation(), source=at("/file"), destination=place)),
        (rename, pb.RenameRequest(mutation=bench.mutation(), source=at("/file"), destination=place)),
    ]
    for operation, request in requests:
        with pytest.raises(NotFound):
            await operation(bench.context, request)
