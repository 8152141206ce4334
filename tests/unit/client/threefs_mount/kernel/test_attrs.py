import stat

import pytest
from threefs_client import paths
from threefs_fuse import replies
from threefs_fuse.requests import Setting
from threefs_mount.kernel import attrs

from threefs.errors import ProtocolError
from threefs.wire import meta_pb2 as pb


def test_attributes_come_over_whole() -> None:
    inode = pb.Inode(inode=1 << 40, type=pb.FILE, mode=0o4755, uid=5, gid=6, nlink=2, length=1025)
    inode.atime_ns, inode.mtime_ns, inode.ctime_ns = 10**18 + 1, 2, -(10**9) + 5
    shown = attrs.entry(inode, 1.5)
    assert shown.inode == 1 << 40 and shown.mode == stat.S_IFREG | 0o4755
    assert (shown.uid, shown.gid, shown.nlink, shown.size, shown.blocks) == (5, 6, 2, 1025, 3)
    assert (shown.atime_ns, shown.mtime_ns, shown.ctime_ns) == (10**18 + 1, 2, -(10**9) + 5)
    assert shown.attributes_s == shown.name_s == 1.5


def test_the_length_of_a_link_is_that_of_its_target() -> None:
    shown = attrs.entry(pb.Inode(inode=2, type=pb.SYMLINK, target=b"there"), 1)
    assert shown.size == 5 and stat.S_ISLNK(shown.mode)


def test_nothing_is_nothing_only_now() -> None:
    assert attrs.ABSENT.inode == 0 and attrs.ABSENT.name_s == 0


def test_space_counts_content() -> None:
    shown = attrs.statfs(pb.StatFsReply(capacity_bytes=3 << 30, free_bytes=3 << 20, inodes=7, replicas=3))
    assert shown.blocks * shown.block_bytes == 1 << 30
    assert shown.available * shown.block_bytes == 1 << 20
    assert shown.inodes - shown.free_inodes == 7


def test_names_as_columns() -> None:
    found = attrs.dirent_page(
        pb.ListNamesReply(names=b"a\0b\0", inodes=bytes(16), types=bytes((pb.FILE, pb.DIRECTORY)), more=True, token=5)
    )
    assert found.names == b"a\0b\0" and found.more and found.token == 5
    assert found.types == bytes((stat.S_IFREG >> 12, stat.S_IFDIR >> 12))
    assert attrs.dirent_page(pb.ListNamesReply()).names == b""


def test_what_has_more_names_than_one_is_not_prepared() -> None:
    """The kernel would believe it under the others when it is changed under one."""
    file, linked = pb.Inode(inode=5, type=pb.FILE, nlink=1, length=7), pb.Inode(inode=6, type=pb.FILE, nlink=2)
    directory = pb.Inode(inode=7, type=pb.DIRECTORY, nlink=4)
    found = attrs.prepared_entries(one.SerializeToString() for one in (file, linked, directory))
    assert found == [replies.prepared(attrs.entry(file, 0)), None, replies.prepared(attrs.entry(directory, 0))]


@pytest.mark.parametrize(
    ("names", "inodes", "types"),
    [(b"a\0b", 16, 2), (b"a\0", 16, 1), (b"a\0", 8, 2), (b"a", 0, 0), (b"\0", 8, 1), (b"a\0\0", 16, 2), (b"", 8, 1)],
)
def test_columns_that_do_not_fit(names: bytes, inodes: int, types: int) -> None:
    with pytest.raises(ProtocolError):
        attrs.dirent_page(pb.ListNamesReply(names=names, inodes=bytes(inodes), types=bytes(types)))


def test_only_what_is_set_is_asked_for() -> None:
    place = paths.inode_place(5)
    assert attrs.setattr_request(place, Setting(mode=0o100644)) == pb.SetAttrRequest(place=place, mode=0o644)
    assert attrs.setattr_request(place, Setting(uid=0, size=3)) == pb.SetAttrRequest(place=place, uid=0)
    assert attrs.setattr_request(place, Setting(atime_now=True, mtime_ns=-7)) == pb.SetAttrRequest(
        place=place, atime_now=True, mtime_ns=-7
    )
    assert attrs.setattr_request(place, Setting(size=3, handle=1, kill_privileges=True)) is None


def test_a_setting_without_attributes_drops_privileges() -> None:
    place = paths.inode_place(5)
    assert attrs.setattr_request(place, Setting()) == pb.SetAttrRequest(place=place, drop_privileges=True)
