"""Access control lists."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.access import acls, permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import READ, WRITE

from tests.harness.meta_harness import MetaBench
from threefs.errors import AccessDenied, InvalidArgument
from threefs.wire import meta_pb2 as pb

OWNER = Credentials(1, 9, frozenset(), False)
OTHER = Credentials(2, 9, frozenset(), False)


def listed(*rows: tuple[int, int, int]) -> bytes:
    """(tag, permissions, id) rows in the form that programs use."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


def acl(owner: int, group: int, mask: int, others: int, *named: tuple[int, int, int]) -> bytes:
    none = 0xFFFFFFFF
    rows = [(1, owner, none), (4, group, none), (16, mask, none), (32, others, none), *named]
    return listed(*sorted(rows, key=lambda row: (row[0], row[2])))


USER, GROUP = 2, 8


def test_programs_get_back_what_they_set() -> None:
    value = acl(7, 5, 6, 1, (USER, 7, 5), (USER, 4, 6), (GROUP, 3, 7))
    inode = pb.Inode(mode=0o4000)
    acls.set_access(inode, acls.parse(value))
    assert inode.mode == 0o4761, "the group bits are the mask"
    assert acls.pack(acls.whole(inode)) == value


def test_a_list_that_a_mode_can_express_is_not_stored() -> None:
    inode = pb.Inode(mode=0o777)
    acls.set_access(inode, acls.parse(listed((1, 6, 0), (4, 4, 0), (32, 0, 0))))
    assert inode.mode == 0o640 and not inode.HasField("access_acl")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\2\0\0",
        listed(),
        listed((1, 6, 0), (4, 4, 0), (32, 0, 0)) + b"x",
        b"\1" + listed((1, 6, 0), (4, 4, 0), (32, 0, 0))[1:],
        listed((1, 6, 0), (4, 4, 0)),
        listed((1, 8, 0), (4, 4, 0), (32, 0, 0)),
        listed((1, 6, 0), (4, 4, 0), (32, 0, 0), (64, 0, 0)),
        listed((0, 6, 0), (1, 6, 0), (4, 4, 0), (32, 0, 0)),
        listed((1, 6, 0), (1, 6, 0), (4, 4, 0), (32, 0, 0)),
        listed((1, 6, 0), (2, 4, 5), (4, 4, 0), (32, 0, 0)),
        acl(7, 7, 7, 7, (USER, 1, 5), (USER, 2, 5)),
        acl(7, 7, 7, 7, *((USER, 1, number) for number in range(acls.MAX_ENTRIES))),
    ],
)
def test_invalid_access_lists_are_refused(value: bytes) -> None:
    with pytest.raises(InvalidArgument):
        acls.parse(value)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_list_or_refused(value: bytes) -> None:
    for tried in (value, b"\2\0\0\0" + value):
        try:
            found = acls.parse(tried)
        except InvalidArgument:
            continue
        assert acls.parse(acls.pack(found)) == found


@pytest.mark.parametrize(
    ("actor", "granted"),
    [
        (OWNER, {READ: True, WRITE: True}),
        (Credentials(5, 9, frozenset(), False), {READ: True, WRITE: False}),  # by name, under the mask
        (Credentials(6, 20, frozenset(), False), {READ: False, WRITE: False}),  # by name, before any group
        (Credentials(7, 20, frozenset(), False), {READ: True, WRITE: False}),  # the owning group, under the mask
        (Credentials(7, 9, frozenset({30}), False), {READ: False, WRITE: False}),  # a group by name, that grants less
        (Credentials(7, 20, frozenset({30}), False), {READ: True, WRITE: False}),  # the better of two groups
        (OTHER, {READ: False, WRITE: True}),
    ],
)
def test_permissions_by_user_and_group(actor: Credentials, granted: dict[int, bool]) -> None:
    inode = pb.Inode(type=pb.FILE, uid=1, gid=20)
    acls.set_access(inode, acls.parse(acl(6, 7, 4, 2, (USER, 7, 5), (USER, 0, 6), (GROUP, 2, 30))))
    for wanted, expected in granted.items():
        assert permissions.permits(inode, actor, wanted) == expected


def test_one_entry_must_grant_all() -> None:
    """Two groups that grant one half each do not grant both together."""
    inode = pb.Inode(type=pb.FILE, uid=1, gid=20)
    acls.set_access(inode, acls.parse(acl(7, 4, 7, 0, (GROUP, 2, 30))))
    both = Credentials(7, 20, frozenset({30}), False)
    assert permissions.permits(inode, both, READ) and permissions.permits(inode, both, WRITE)
    assert not permissions.permits(inode, both, READ | WRITE)


def test_a_list_whose_mask_grants_nothing_is_not_looked_into() -> None:
    """So it is on Linux, and the kernel checks for a mount: whoever is only named there is one of the others."""
    inode = pb.Inode(type=pb.FILE, uid=1, gid=20)
    acls.set_access(inode, acls.parse(acl(7, 7, 0, 4, (USER, 6, 5), (GROUP, 6, 30))))
    for actor in (Credentials(5, 9, frozenset(), False), Credentials(7, 9, frozenset({30}), False), OTHER):
        assert permissions.permits(inode, actor, READ) and not permissions.permits(inode, actor, WRITE)
    assert not permissions.permits(inode, Credentials(7, 20, frozenset(), False), READ), "the owning group has nothing"


async def test_a_change_of_mode_changes_the_mask(bench: MetaBench) -> None:
    await bench.create("/a", mode=0o600)
    await bench.set_xattr("/a", acls.ACCESS, acl(6, 4, 6, 0, (USER, 6, 5)))
    assert (await bench.stat("/a")).mode == 0o660
    with bench.user(5, 5):
        await bench.open("/a", access=6)
    await bench.set("/a", mode=0o640)
    assert await bench.get_xattr("/a", acls.ACCESS) == acl(6, 4, 4, 0, (USER, 6, 5))
    with bench.user(5, 5), pytest.raises(AccessDenied):
        await bench.open("/a", access=6)
    await bench.remove_xattr("/a", acls.ACCESS)
    assert (await bench.stat("/a")).mode == 0o640
    with bench.user(5, 5), pytest.raises(AccessDenied):
        await bench.open("/a", access=4)


async def test_what_is_made_inherits_the_default_list_and_no_umask(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    default = acl(7, 5, 7, 0, (USER, 7, 5))
    await bench.set_xattr("/d", acls.DEFAULT, default)
    assert (await bench.stat("/d")).mode == 0o755
    made = (await bench.create("/d/file", mode=0o664, umask=0o077)).inode
    assert made.mode == 0o660
    assert await bench.get_xattr("/d/file", acls.ACCESS) == acl(6, 5, 6, 0, (USER, 7, 5))
    assert acls.DEFAULT not in await bench.xattrs("/d/file")
    await bench.mkdir("/d/e", mode=0o750, umask=0o077)
    assert await bench.get_xattr("/d/e", acls.ACCESS) == acl(7, 5, 5, 0, (USER, 7, 5))
    assert await bench.get_xattr("/d/e", acls.DEFAULT) == default
    assert not (await bench.symlink("x", "/d/link")).HasField("access_acl")
    await bench.remove_xattr("/d", acls.DEFAULT)
    assert (await bench.create("/d/plain", mode=0o664, umask=0o022)).inode.mode == 0o644


async def test_a_default_that_a_mode_can_say_leaves_no_list(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.set_xattr("/d", acls.DEFAULT, listed((1, 7, 0), (4, 5, 0), (32, 1, 0)))
    made = (await bench.create("/d/file", mode=0o666, umask=0o777)).inode
    assert made.mode == 0o640 and not made.HasField("access_acl")
