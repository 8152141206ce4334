"""Attributes."""

import pytest
from threefs_meta.ops.stat import stat

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


async def test_of_files_links_and_directories(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    link = await bench.symlink("a", "/l")
    assert await bench.stat("/l") == made
    assert await bench.stat("/l", follow=False) == link and link.length == 1 and link.target == b"a"
    root = await bench.stat("/")
    assert (root.inode, root.type, root.mode) == (1, pb.DIRECTORY, 0o755)


async def test_it_changes_nothing(bench: MetaBench) -> None:
    await bench.create("/a")
    before = bench.engine._history.version
    await bench.stat("/a")
    with pytest.raises(NotFound):
        await bench.stat("/b")
    with pytest.raises(InvalidArgument):
        await stat(bench.context, pb.StatRequest(place=at(b"a\0")))
    assert bench.engine._history.version == before
