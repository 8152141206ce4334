"""Setting attributes."""

import pytest
from threefs_meta.ops.set_xattr import set_xattr
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import AlreadyExists, InvalidArgument, NoAttribute, NotFound, PermissionDenied
from threefs.wire import meta_pb2 as pb


async def test_made_and_replaced_as_asked(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    bench.clock.advance(1)
    with pytest.raises(NoAttribute):
        await bench.set_xattr("/a", b"user.a", b"1", replace=True)
    found = await bench.set_xattr("/a", b"user.a", b"1", create=True)
    assert found.ctime_ns == bench.clock.wall_ns() > found.mtime_ns == made.mtime_ns
    with pytest.raises(AlreadyExists):
        await bench.set_xattr("/a", b"user.a", b"2", create=True)
    await bench.set_xattr("/a", b"user.a", b"3", replace=True)
    await bench.set_xattr("/a", b"user.a", b"")
    assert await bench.get_xattr("/a", b"user.a") == b""
    with pytest.raises(InvalidArgument):
        await bench.set_xattr("/a", b"user.a", b"2", create=True, replace=True)
    with pytest.raises(NotFound):
        await bench.set_xattr("/b", b"user.a", b"2")
    await bench.symlink("a", "/l")
    with pytest.raises(PermissionDenied):
        await bench.set_xattr("/l", b"user.a", b"2")


async def test_what_has_no_name_gets_attributes_only_while_it_is_open(bench: MetaBench) -> None:
    """Later they could not be freed with it. The bench audits that nothing is left of them."""
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.remove("/a")

    async def set_on_inode(name: bytes) -> None:
        place = at("", made.inode)
        request = pb.SetXattrRequest(mutation=bench.mutation(), place=place, name=name, value=b"v")
        await set_xattr(bench.context, request)

    await set_on_inode(b"user.a")
    await bench.close(made, SESSION)
    with pytest.raises(NotFound):
        await set_on_inode(b"user.b")
    await bench.collect_all()
    begin, end = keys.xattrs(made.inode)
    assert await run_readonly(bench.context, lambda ns: ns.tx.get_range(begin, end)) == []
