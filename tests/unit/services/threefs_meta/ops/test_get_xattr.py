"""Reading attributes."""

import pytest
from threefs_meta.ops.get_xattr import get_xattr

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import NoAttribute, NotSupported
from threefs.wire import meta_pb2 as pb


async def test_of_a_file_or_of_what_a_link_points_to(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.symlink("a", "/l")
    with pytest.raises(NoAttribute):
        await bench.get_xattr("/a", b"user.a")
    await bench.set_xattr("/a", b"user.a", b"\0value\xff")
    assert await bench.get_xattr("/a", b"user.a") == b"\0value\xff"
    request = pb.GetXattrRequest(place=at("/l"), name=b"user.a", follow=True)
    assert (await get_xattr(bench.context, request)).value == b"\0value\xff"
    for path, name in (("/l", b"user.a"), ("/a", b"user.b")):
        with pytest.raises(NoAttribute):
            await bench.get_xattr(path, name)
    with pytest.raises(NotSupported):
        await bench.get_xattr("/a", b"system.b")
