"""Layouts of directories."""

import pytest
from threefs_meta.ops.set_layout import set_layout

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import InvalidArgument, NotADirectory
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


async def change(fs: MetaBench, path: str, layout: pb.Layout) -> pb.Inode:
    request = pb.SetLayoutRequest(mutation=fs.mutation(), place=at(path), layout=layout)
    return (await set_layout(fs.context, request)).inode


async def test_new_files_get_it_and_old_ones_stay(bench: MetaBench) -> None:
    old = (await bench.create("/d/old", parents=True)).inode
    await change(bench, "/d", pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
    await change(bench, "/d", pb.Layout(stripe=1))
    assert (await bench.stat("/d/old")).layout == old.layout
    new = (await bench.create("/d/new")).inode.layout
    assert (new.chunk_bytes, new.stripe) == (MIN_CHUNK_BYTES, 1)
    below = (await bench.create("/d/made/later/f", parents=True)).inode.layout
    assert (below.chunk_bytes, below.stripe) == (MIN_CHUNK_BYTES, 1)


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    await bench.create("/a")
    with pytest.raises(NotADirectory):
        await change(bench, "/a", pb.Layout(stripe=1))
    for layout in (pb.Layout(chunk_bytes=1), pb.Layout(stripe=4096), pb.Layout(table_id=7)):
        with pytest.raises(InvalidArgument):
            await change(bench, "/", layout)
    assert not (await bench.stat("/")).HasField("layout")
