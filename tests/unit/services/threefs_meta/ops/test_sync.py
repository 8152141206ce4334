"""Settling the length of an open file."""

import pytest
from threefs_meta.ops.sync import sync

from tests.harness.meta_harness import MetaBench
from threefs.errors import FileTooLarge, IsADirectory, NotFound
from threefs.wire import meta_pb2 as pb


def request(fs: MetaBench, inode: int, end: int) -> pb.SyncRequest:
    return pb.SyncRequest(mutation=fs.mutation(), inode=inode, length_hint=end, written=True)


async def test_the_length_only_grows(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    for end, length in ((10, 10), (5, 10), (11, 11)):
        assert (await sync(bench.context, request(bench, made.inode, end))).inode.length == length
    assert (await bench.stat("/a")).length == 11


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    for inode, end, error in ((99, 1, NotFound), (1, 1, IsADirectory), (made.inode, 1 << 63, FileTooLarge)):
        with pytest.raises(error):
            await sync(bench.context, request(bench, inode, end))
    assert await bench.stat("/a") == made
