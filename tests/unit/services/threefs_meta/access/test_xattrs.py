"""Names and limits of extended attributes."""

import pytest
from threefs_meta.access import acls, xattrs
from threefs_meta.access.credentials import TRUSTED, Credentials
from threefs_meta.store import keys

from tests.harness.meta_harness import MetaBench
from threefs.errors import AccessDenied, InvalidArgument, NameTooLong, NoAttribute, NoSpace, NotSupported, ResultTooLong
from threefs.wire import meta_pb2 as pb

USER = Credentials(1, 1, frozenset(), False)


@pytest.mark.parametrize("name", [b"user.a", b"user.\xff.b", b"trusted.x", b"security.y", acls.ACCESS, acls.DEFAULT])
def test_names_that_there_may_be(name: bytes) -> None:
    xattrs.check_name(name)
    xattrs.check_name(b"user." + b"n" * 250)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (b"", NotSupported),
        (b"user", NotSupported),
        (b"user.", NotSupported),
        (b"other.a", NotSupported),
        (b"system.other", NotSupported),
        (b"user.a\0", InvalidArgument),
        (b"user." + b"n" * 251, NameTooLong),
    ],
)
def test_names_that_there_may_not_be(name: bytes, error: type[OSError]) -> None:
    with pytest.raises(error):
        xattrs.check_name(name)


def test_trusted_ones_are_not_even_seen_by_users() -> None:
    assert not xattrs.is_visible(USER, b"trusted.a") and xattrs.is_visible(TRUSTED, b"trusted.a")
    assert xattrs.is_visible(USER, b"security.a")
    inode = pb.Inode(type=pb.FILE, mode=0o644)
    with pytest.raises(NoAttribute):
        xattrs.check_read(inode, USER, b"trusted.a", "it")
    xattrs.check_read(inode, TRUSTED, b"trusted.a", "it")
    xattrs.check_read(pb.Inode(type=pb.FILE), USER, b"security.a", "it")


def test_lists_belong_to_their_kinds_of_inodes() -> None:
    with pytest.raises(AccessDenied):
        xattrs.check_write(pb.Inode(type=pb.FILE), TRUSTED, acls.DEFAULT, "it")
    with pytest.raises(NotSupported):
        xattrs.check_write(pb.Inode(type=pb.SYMLINK), TRUSTED, acls.ACCESS, "it")
    xattrs.check_write(pb.Inode(type=pb.DIRECTORY), TRUSTED, acls.DEFAULT, "it")


async def test_all_together_are_bounded_and_what_is_removed_makes_room(bench: MetaBench) -> None:
    await bench.create("/a")
    with pytest.raises(ResultTooLong):
        await bench.set_xattr("/a", b"user.x", b"v" * ((64 << 10) + 1))
    await bench.set_xattr("/a", b"user.x", b"v" * (64 << 10))
    with pytest.raises(NoSpace, match=r"the attributes of /a would take 1[0-9]+ bytes, more than 131072; remove some"):
        await bench.set_xattr("/a", b"user.y", b"v" * (64 << 10))
    await bench.set_xattr("/a", b"user.x", b"")
    await bench.set_xattr("/a", b"user.y", b"v" * (64 << 10))
    await bench.remove_xattr("/a", b"user.y")
    assert (await bench.stat("/a")).xattr_bytes == xattrs.COST_BYTES + len(b"user.x")
    await bench.remove_xattr("/a", b"user.x")
    assert (await bench.stat("/a")).xattr_bytes == 0


async def test_as_many_as_there_may_be_go_with_their_inode(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.mknod("/fifo", pb.FIFO)
    await bench.create("/file")
    with pytest.raises(NoSpace):
        for number in range(10_000):
            await bench.set_xattr("/file", b"user.%d" % number, b"")
    assert number > 1000
    for path, name in (("/d", b"user.a"), ("/fifo", b"trusted.a")):
        await bench.set_xattr(path, name, b"value")
    for path in ("/d", "/fifo", "/file"):
        await bench.remove(path)
    await bench.audit()
    await bench.collect_all()
    assert await bench.engine.begin().get_range(*keys.XATTRS) == []
    assert len(await bench.engine.begin().get_range(*keys.INODES)) == 1
