"""Asking what is permitted."""

import pytest
from threefs_meta.ops.access import access

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AccessDenied, InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


async def test_it_answers_for_links_and_inodes_too(bench: MetaBench) -> None:
    made = (await bench.create("/a", mode=0o640)).inode
    await bench.symlink("a", "/l")
    user = pb.Caller(uid=1, gid=0)
    for place in (at("/a"), at("/l"), at("", made.inode)):
        reply = await access(bench.context, pb.AccessRequest(place=place, wanted=4, follow=True, caller=user))
        assert reply.inode == made
        with pytest.raises(AccessDenied):
            await access(bench.context, pb.AccessRequest(place=place, wanted=2, follow=True, caller=user))
    await access(bench.context, pb.AccessRequest(place=at("/l"), wanted=2, caller=user))  # of the link itself
    with pytest.raises(InvalidArgument):
        await access(bench.context, pb.AccessRequest(place=at("/a"), wanted=8))
    with pytest.raises(NotFound):
        await access(bench.context, pb.AccessRequest(place=at("/b")))
