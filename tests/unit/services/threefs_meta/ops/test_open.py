"""Opening files."""

import pytest
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import InvalidArgument, IsADirectory, NotFound
from threefs.wire import meta_pb2 as pb


async def sessions(fs: MetaBench) -> int:
    return len(await fs.engine.begin().get_range(*keys.SESSIONS))


async def test_for_reading_needs_no_identity_and_leaves_nothing(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    before = bench.engine._history.version
    assert (await open_inode(bench.context, pb.OpenRequest(place=at("/a")))).inode == made
    assert (await bench.open("/")).type == pb.DIRECTORY
    assert bench.engine._history.version == before


async def test_for_writing_opens_a_session(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.symlink("a", "/link")
    await bench.open("/link", session=SESSION)
    assert await sessions(bench) == 1
    with pytest.raises(IsADirectory):
        await bench.open("/", session=SESSION)
    with pytest.raises(NotFound):
        await bench.open("/b", session=SESSION)
    with pytest.raises(InvalidArgument):
        await bench.open("/a", session=b"s")
    with pytest.raises(InvalidArgument, match="identity"):
        await open_inode(bench.context, pb.OpenRequest(place=at("/a"), session=SESSION))
    assert await sessions(bench) == 1


async def test_truncate_empties_it(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.write(made, 0, b"data")
    opened = await bench.open("/a", truncate=True)
    assert (opened.length, opened.truncate_version) == (0, 1)
    assert bench.chunk_numbers(made) == []
