"""Opening files."""

import pytest
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness.meta_harness import SESSION, MetaBench, at, run
from threefs.errors import InvalidArgument, IsADirectory, NotFound
from threefs.wire import meta_pb2 as pb


async def sessions(fs: MetaBench) -> int:
    return len(await fs.engine.begin().get_range(*keys.SESSIONS))


def test_for_reading_needs_no_identity_and_leaves_nothing() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        before = fs.engine._history.version
        assert (await open_inode(fs.context, pb.OpenRequest(place=at("/a")))).inode == made
        assert (await fs.open("/")).type == pb.DIRECTORY
        assert fs.engine._history.version == before

    run(test)


def test_for_writing_opens_a_session() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.symlink("a", "/link")
        await fs.open("/link", session=SESSION)
        assert await sessions(fs) == 1
        with pytest.raises(IsADirectory):
            await fs.open("/", session=SESSION)
        with pytest.raises(NotFound):
            await fs.open("/b", session=SESSION)
        with pytest.raises(InvalidArgument):
            await fs.open("/a", session=b"s")
        with pytest.raises(InvalidArgument, match="identity"):
            await open_inode(fs.context, pb.OpenRequest(place=at("/a"), session=SESSION))
        assert await sessions(fs) == 1

    run(test)


def test_truncate_empties_it() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.write(made, 0, b"data")
        opened = await fs.open("/a", truncate=True)
        assert (opened.length, opened.truncate_version) == (0, 1)
        assert fs.chunk_numbers(made) == []

    run(test)
