"""Extended attributes, one at a time."""

import struct

import pytest
from threefs_meta.access import acls
from threefs_meta.ops.xattr import get_xattr, set_xattr
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import SESSION, MetaBench, at
from tests.unit.services.threefs_meta.access.test_acls import USER, acl
from threefs.errors import AlreadyExists, InvalidArgument, NoAttribute, NotFound, NotSupported, PermissionDenied
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


async def test_each_sees_what_is_theirs_to_see(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert await bench.xattrs("/d") == []
    names = [b"security.c", b"trusted.b", b"user.a"]
    for name in names:
        await bench.set_xattr("/d", name, b"")
    await bench.set_xattr("/d", acls.ACCESS, acl(7, 7, 7, 7, (USER, 7, 5)))
    await bench.set_xattr("/d", acls.DEFAULT, acl(7, 7, 7, 7))
    assert await bench.xattrs("/d") == [*names, acls.ACCESS, acls.DEFAULT]
    with bench.user(5, 5):
        assert await bench.xattrs("/d") == [b"security.c", b"user.a", acls.ACCESS, acls.DEFAULT]


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


async def test_only_what_is_there(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.set_xattr("/a", b"user.a", b"1")
    await bench.set_xattr("/a", b"user.b", b"2")
    bench.clock.advance(1)
    assert (await bench.remove_xattr("/a", b"user.a")).ctime_ns == bench.clock.wall_ns()
    assert await bench.xattrs("/a") == [b"user.b"]
    with pytest.raises(NoAttribute):
        await bench.remove_xattr("/a", b"user.a")


async def test_a_list_need_not_be_there(bench: MetaBench) -> None:
    await bench.create("/a")
    for name in (b"system.posix_acl_access", b"system.posix_acl_default"):
        await bench.remove_xattr("/a", name)
        await bench.remove_xattr("/", name)


async def test_the_mode_stays_as_the_mask_was(bench: MetaBench) -> None:
    await bench.create("/a")
    none = 0xFFFFFFFF
    rows = [(1, 6, none), (2, 7, 5), (4, 4, none), (16, 6, none), (32, 0, none)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    await bench.set_xattr("/a", b"system.posix_acl_access", acl)
    assert (await bench.remove_xattr("/a", b"system.posix_acl_access")).mode == 0o660
    assert await bench.xattrs("/a") == []
