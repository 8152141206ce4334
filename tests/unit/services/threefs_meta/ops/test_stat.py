"""Attributes."""

import pytest
from threefs_meta.ops.stat import stat

from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


def test_of_files_links_and_directories() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        link = await fs.symlink("a", "/l")
        assert await fs.stat("/l") == made
        assert await fs.stat("/l", follow=False) == link and link.length == 1 and link.target == b"a"
        root = await fs.stat("/")
        assert (root.inode, root.type, root.mode) == (1, pb.DIRECTORY, 0o755)

    run(test)


def test_it_changes_nothing() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        before = fs.engine._history.version
        await fs.stat("/a")
        with pytest.raises(NotFound):
            await fs.stat("/b")
        with pytest.raises(InvalidArgument):
            await stat(fs.context, pb.StatRequest(place=at(b"a\0")))
        assert fs.engine._history.version == before

    run(test)
