"""One name in a directory."""

import pytest
from threefs_meta.ops.lookup import lookup

from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument, NameTooLong, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb


async def test_what_is_there_and_what_is_not(bench: MetaBench) -> None:
    directory = await bench.mkdir("/d")
    file = (await bench.create("/d/f")).inode
    link = await bench.symlink("f", "/d/l")

    async def find(parent: int, name: bytes) -> pb.Inode:
        return (await lookup(bench.context, pb.LookupRequest(parent=parent, name=name))).inode

    assert await find(directory.inode, b"f") == file
    assert await find(directory.inode, b"l") == link, "links are not followed"
    assert (await find(1, b"d")).inode == directory.inode
    for parent, name, error in (
        (1, b"x", NotFound),
        (99, b"x", NotFound),
        (file.inode, b"x", NotADirectory),
        (1, b"", InvalidArgument),
        (1, b"..", InvalidArgument),
        (1, b"d/f", InvalidArgument),
        (1, b"a\0", InvalidArgument),
        (1, b"n" * 256, NameTooLong),
    ):
        with pytest.raises(error):
            await find(parent, name)
