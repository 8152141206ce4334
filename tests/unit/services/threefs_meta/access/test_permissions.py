"""Who may do what."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_meta.access import acls, permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import EXECUTE, READ, WRITE, check_open
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.list import list_entries
from threefs_meta.ops.list_names import list_names
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.ops.mknod import mknod
from threefs_meta.ops.open import open_inode
from threefs_meta.ops.quota import set_quota
from threefs_meta.ops.remove import remove
from threefs_meta.ops.rename import rename
from threefs_meta.ops.set_layout import set_layout
from threefs_meta.ops.setattr import set_attributes
from threefs_meta.ops.stat import access, batch_stat, lookup, stat
from threefs_meta.ops.symlink import symlink
from threefs_meta.ops.trash import set_trash
from threefs_meta.ops.truncate import truncate
from threefs_meta.ops.xattr import get_xattr, list_xattr, remove_xattr, set_xattr

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AccessDenied, InvalidArgument, PermissionDenied, SessionLost
from threefs.wire import meta_pb2 as pb

OWNER = Credentials(1, 10, frozenset(), False)
MEMBER = Credentials(2, 11, frozenset({20}), False)
OTHER = Credentials(3, 12, frozenset(), False)
SUPER = Credentials()


def file(mode: int) -> pb.Inode:
    return pb.Inode(type=pb.FILE, mode=mode, uid=1, gid=20)


@pytest.mark.parametrize(
    ("mode", "actor", "granted"),
    [
        (0o750, OWNER, READ | WRITE | EXECUTE),
        (0o750, MEMBER, READ | EXECUTE),
        (0o750, OTHER, 0),
        (0o077, OWNER, 0),  # the owner's class decides, though others may do more
        (0o604, MEMBER, 0),
        (0o604, OTHER, READ),
        (0o000, SUPER, READ | WRITE),
        (0o001, SUPER, READ | WRITE | EXECUTE),
    ],
)
def test_the_first_class_that_fits_decides(mode: int, actor: Credentials, granted: int) -> None:
    inode = file(mode)
    assert [bit for bit in (1, 2, 4) if permissions.permits(inode, actor, bit)] == [b for b in (1, 2, 4) if granted & b]
    assert permissions.permits(inode, actor, granted)
    if granted != 7:
        names = {READ: "read", WRITE: "write", EXECUTE: "execute"}
        missing = " and ".join(name for bit, name in names.items() if not granted & bit)
        with pytest.raises(AccessDenied, match=f"it: user {actor.uid} has no permission to {missing}$"):
            permissions.check(inode, actor, 7, "it")


def test_only_what_is_missing_is_named() -> None:
    directory = pb.Inode(type=pb.DIRECTORY, mode=0o755)
    with pytest.raises(AccessDenied, match=f"the directory /d: user {OTHER.uid} has no permission to write$"):
        permissions.check_parent(directory, OTHER, "/d")
    with pytest.raises(AccessDenied, match=r"write and search$"):
        permissions.check_parent(pb.Inode(type=pb.DIRECTORY, mode=0o700), OTHER, "/d")


def test_modes() -> None:
    for mode in (0, 0o644, 0o7777):
        permissions.check_mode(mode)
    with pytest.raises(InvalidArgument, match="0o10000"):
        permissions.check_mode(0o10000)


def test_the_super_user_searches_every_directory() -> None:
    assert permissions.permits(pb.Inode(type=pb.DIRECTORY, mode=0), SUPER, 7)


def test_in_a_sticky_directory_one_needs_to_own_something() -> None:
    sticky = pb.Inode(type=pb.DIRECTORY, mode=0o1777, uid=1)
    permissions.check_sticky(pb.Inode(mode=0o777, uid=1), pb.Inode(uid=2), OTHER, "it")
    for inode, actor in ((pb.Inode(uid=3), OTHER), (pb.Inode(uid=2), OWNER), (pb.Inode(uid=2), SUPER)):
        permissions.check_sticky(sticky, inode, actor, "it")
    with pytest.raises(PermissionDenied):
        permissions.check_sticky(sticky, pb.Inode(uid=2), OTHER, "it")


@pytest.mark.parametrize(
    ("before", "after", "in_group"),
    [(0o6755, 0o755, 0o755), (0o2745, 0o745, 0o2745), (0o4600, 0o600, 0o600), (0o1777, 0o1777, 0o1777)],
)
def test_what_others_write_gains_nothing(before: int, after: int, in_group: int) -> None:
    for actor, expected in ((OTHER, after), (MEMBER, in_group)):
        inode = file(before)
        permissions.drop_privileges(inode, actor)
        assert inode.mode == expected


_ACL = acls.pack(
    pb.Acl(entries=[pb.AclEntry(tag=tag, permissions=4) for tag in (pb.ACL_OWNER, pb.ACL_GROUP, pb.ACL_OTHERS)])
)
Operation = Callable[[Any, Any], Awaitable[Any]]

#: One of each, that nobody but the owner of /d may do: over /d/file, /d/dir (0700 all) and /mine, which is the user's.
REQUESTS: list[tuple[Operation, Any]] = [
    (access, pb.AccessRequest(place=at("/d/file"))),
    (access, pb.AccessRequest(place=at("/d"), wanted=EXECUTE)),
    (stat, pb.StatRequest(place=at("/d/file"))),
    (stat, pb.StatRequest(place=at("/d/.."))),
    (lookup, pb.LookupRequest(parent=2, name=b"file")),
    (list_entries, pb.ListRequest(place=at("/d"))),
    (list_names, pb.ListNamesRequest(directory=2)),
    (create, pb.CreateRequest(place=at("/d/new"))),
    (create, pb.CreateRequest(place=at("/d/file"))),
    (create, pb.CreateRequest(place=at("/new"))),
    (create, pb.CreateRequest(place=at("/new/a"), parents=True)),
    (create, pb.CreateRequest(place=at("/"), unnamed=True, session=b"1" * 16)),
    (create, pb.CreateRequest(place=at("/closed"), access=READ)),
    (create, pb.CreateRequest(place=at("/closed"), session=b"1" * 16)),
    (create, pb.CreateRequest(place=at("/closed"), truncate=True)),
    (open_inode, pb.OpenRequest(place=at("/closed"), access=READ)),
    (open_inode, pb.OpenRequest(place=at("/closed"), session=b"1" * 16)),
    (open_inode, pb.OpenRequest(place=at("/closed"), truncate=True)),
    (truncate, pb.TruncateRequest(place=at("/closed"), length=1)),
    (mkdir, pb.MkdirRequest(place=at("/new"))),
    (mkdir, pb.MkdirRequest(place=at("/new/a"), parents=True)),
    (mknod, pb.MknodRequest(place=at("/new"), type=pb.FIFO)),
    (symlink, pb.SymlinkRequest(place=at("/new"), target=b"x")),
    (link, pb.LinkRequest(source=at("/mine/file"), destination=at("/new"))),
    (link, pb.LinkRequest(source=at("/d/file"), destination=at("/mine/new"))),
    (remove, pb.RemoveRequest(place=at("/closed"))),
    (remove, pb.RemoveRequest(place=at("/hollow"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/new"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/closed"))),
    (rename, pb.RenameRequest(source=at("/closed"), destination=at("/mine/new"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/closed"), exchange=True)),
    (rename, pb.RenameRequest(source=at("/mine/theirs"), destination=at("/mine/dir/theirs"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/mine/dir/theirs"), exchange=True)),
]
#: These are about extended attributes.
REQUESTS += [
    (get_xattr, pb.GetXattrRequest(place=at("/d/file"), name=b"user.a")),
    (get_xattr, pb.GetXattrRequest(place=at("/closed"), name=b"user.a")),
    (list_xattr, pb.ListXattrRequest(place=at("/d/file"))),
    (set_xattr, pb.SetXattrRequest(place=at("/closed"), name=b"user.b")),
    (remove_xattr, pb.RemoveXattrRequest(place=at("/closed"), name=b"user.a")),
]
#: These need the owner, whatever the permission bits are.
OWNERS: list[tuple[Operation, Any]] = [
    (set_layout, pb.SetLayoutRequest(place=at("/"), layout=pb.Layout(stripe=1))),
    (set_trash, pb.SetTrashRequest(place=at("/"), trash_s=60)),
    (set_quota, pb.SetQuotaRequest(place=at("/mine"), limit_bytes=1)),
    (set_attributes, pb.SetAttrRequest(place=at("/closed"), mode=0o777)),
    (set_attributes, pb.SetAttrRequest(place=at("/closed"), uid=5)),
    (set_attributes, pb.SetAttrRequest(place=at("/closed"), gid=5)),
    (set_attributes, pb.SetAttrRequest(place=at("/closed"), mtime_ns=5)),
    (set_attributes, pb.SetAttrRequest(place=at("/closed"), atime_now=True)),
    (set_attributes, pb.SetAttrRequest(place=at("/mine/file"), uid=6)),
    (set_attributes, pb.SetAttrRequest(place=at("/mine/file"), gid=6)),
    (mknod, pb.MknodRequest(place=at("/mine/new"), type=pb.BLOCK_DEVICE)),
    (remove, pb.RemoveRequest(place=at("/sticky/file"))),
    (rename, pb.RenameRequest(source=at("/sticky/file"), destination=at("/mine/new"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/sticky/file"))),
    (rename, pb.RenameRequest(source=at("/mine/file"), destination=at("/sticky/file"), exchange=True)),
    (link, pb.LinkRequest(source=at("/mine"), destination=at("/mine/new"))),
    (set_xattr, pb.SetXattrRequest(place=at("/mine/file"), name=b"trusted.a")),
    (set_xattr, pb.SetXattrRequest(place=at("/mine/file"), name=b"security.a")),
    (remove_xattr, pb.RemoveXattrRequest(place=at("/mine/file"), name=b"trusted.a")),
    (set_xattr, pb.SetXattrRequest(place=at("/sticky/file"), name=acls.ACCESS, value=_ACL)),
    (set_xattr, pb.SetXattrRequest(place=at("/sticky"), name=b"user.a")),
]


async def prepare(fs: MetaBench) -> None:
    assert (await fs.mkdir("/d", mode=0o700)).inode == 2
    await fs.create("/d/file", mode=0o600)
    await fs.mkdir("/d/dir", mode=0o700)
    await fs.create("/closed", mode=0o600)
    await fs.mkdir("/hollow")
    await fs.mkdir("/sticky", mode=0o1777)
    await fs.create("/sticky/file", mode=0o666)
    await fs.mkdir("/mine")
    await fs.create("/mine/file")
    await fs.mkdir("/mine/dir")
    await fs.mkdir("/mine/theirs")
    await fs.mkdir("/mine/dir/theirs")
    for path in ("/closed", "/d/file"):
        await fs.set_xattr(path, b"user.a", b"value")
    await fs.set_xattr("/mine/file", b"trusted.a", b"value")
    for path in ("/hollow", "/mine", "/mine/file", "/mine/dir"):
        await fs.set(path, uid=5, gid=5)


@pytest.mark.parametrize(
    ("operation", "request_", "error"),
    [(*pair, AccessDenied) for pair in REQUESTS] + [(*pair, PermissionDenied) for pair in OWNERS],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_no_operation_forgets_to_ask(
    bench: MetaBench, operation: Operation, request_: Any, error: type[OSError]
) -> None:
    async def everything(fs: MetaBench) -> list[tuple[bytes, bytes]]:
        return await fs.engine.begin().get_range(b"", b"\xff")

    await prepare(bench)
    before = await everything(bench)
    if "mutation" in request_.DESCRIPTOR.fields_by_name:
        request_.mutation.CopyFrom(bench.mutation())
    request_.caller.CopyFrom(pb.Caller(uid=5, gid=5))
    with pytest.raises(error):
        await operation(bench.context, request_)
    assert await everything(bench) == before
    request_.caller.CopyFrom(pb.Caller(uid=0, gid=0))
    if operation is not link or request_.source != at("/mine"):
        await operation(bench.context, request_)


async def test_a_write_session_that_is_not_open_grants_nothing(bench: MetaBench) -> None:
    await prepare(bench)
    request = pb.TruncateRequest(place=at("/closed"), length=1, session=b"1" * 16, mutation=bench.mutation())
    request.caller.CopyFrom(pb.Caller(uid=5, gid=5))
    with pytest.raises(SessionLost, match="/closed is not open under this write session"):
        await truncate(bench.context, request)
    assert (await bench.stat("/closed")).length == 0


async def test_each_of_a_batch_is_asked_for(bench: MetaBench) -> None:
    await prepare(bench)
    places = [at("/d/file"), at("/closed")]
    asked = pb.BatchStatRequest(places=places, paths=[b"closed", b"d/file"], caller=pb.Caller(uid=5))
    reply = (await batch_stat(bench.context, asked)).parsed()
    assert [result.code for result in reply.results] == [AccessDenied.code, 0]
    assert [(error.number, error.code) for error in reply.errors] == [(1, AccessDenied.code)]


USER = Credentials(1, 1, frozenset(), False)


def test_a_session_or_a_truncate_needs_permission_to_write() -> None:
    readable = pb.Inode(type=pb.FILE, mode=0o444)
    check_open(readable, USER, pb.OpenRequest(access=4), "it")
    for request in (pb.OpenRequest(access=6), pb.OpenRequest(session=b"s" * 16), pb.OpenRequest(truncate=True)):
        with pytest.raises(AccessDenied):
            check_open(readable, USER, request, "it")


def test_only_files_have_content() -> None:
    with pytest.raises(InvalidArgument):
        check_open(pb.Inode(type=pb.FIFO, mode=0o666), USER, pb.OpenRequest(session=b"s" * 16), "it")


def test_a_missing_permission_to_write_is_the_first_error() -> None:
    with pytest.raises(AccessDenied):
        check_open(pb.Inode(type=pb.FIFO, mode=0), USER, pb.OpenRequest(session=b"s" * 16), "it")
