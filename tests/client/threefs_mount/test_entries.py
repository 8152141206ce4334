import stat
import struct

import pytest
from threefs_mount import entries
from threefs_mount.listing import Listed

from threefs.errors import ProtocolError
from threefs.wire import meta_pb2 as pb


def test_attributes_come_over_whole() -> None:
    inode = pb.Inode(inode=1 << 40, type=pb.FILE, mode=0o4755, uid=5, gid=6, nlink=2, length=1025)
    inode.atime_ns, inode.mtime_ns, inode.ctime_ns = 10**18 + 1, 2, -(10**9) + 5
    shown = entries.entry(inode, 1.5)
    assert shown.inode == 1 << 40 and shown.mode == stat.S_IFREG | 0o4755
    assert (shown.uid, shown.gid, shown.nlink, shown.size, shown.blocks) == (5, 6, 2, 1025, 3)
    assert (shown.atime_ns, shown.mtime_ns, shown.ctime_ns) == (10**18 + 1, 2, -(10**9) + 5)
    assert shown.attributes_s == shown.name_s == 1.5


def test_the_length_of_a_link_is_that_of_its_target() -> None:
    shown = entries.entry(pb.Inode(inode=2, type=pb.SYMLINK, target=b"there"), 1)
    assert shown.size == 5 and stat.S_ISLNK(shown.mode)


def test_nothing_is_nothing_only_now() -> None:
    assert entries.ABSENT.inode == 0 and entries.ABSENT.name_s == 0


def test_space_counts_content() -> None:
    shown = entries.space(pb.StatFsReply(capacity_bytes=3 << 30, free_bytes=3 << 20, inodes=7, replicas=3))
    assert shown.blocks * shown.block_bytes == 1 << 30
    assert shown.available * shown.block_bytes == 1 << 20
    assert shown.inodes - shown.free_inodes == 7


def test_names_as_columns() -> None:
    found = entries.names(
        pb.ListNamesReply(names=b"a\0b\0", inodes=bytes(16), types=bytes((pb.FILE, pb.DIRECTORY)), more=True, token=5)
    )
    assert found.names == b"a\0b\0" and found.more and found.token == 5
    assert found.types == bytes((stat.S_IFREG >> 12, stat.S_IFDIR >> 12))
    assert entries.names(pb.ListNamesReply()).names == b""


def test_names_with_attributes() -> None:
    reply = pb.ListNamesReply(names=b"a\0b\0", inodes=struct.pack("<2Q", 5, 6), types=bytes((pb.FILE, pb.FILE)))
    reply.attributes.append(b"x")
    with pytest.raises(ProtocolError):
        entries.names_and_attributes(reply, 7, 1.5, 3)
    reply.attributes.append(b"y")
    found = entries.names_and_attributes(reply, 7, 1.5, 3)
    assert found.names == b"a\0b\0" and found.listed == Listed(7, b"a\0b\0", (5, 6), [b"x", b"y"], 1.5, 3)


@pytest.mark.parametrize(
    ("names", "inodes", "types"),
    [(b"a\0b", 16, 2), (b"a\0", 16, 1), (b"a\0", 8, 2), (b"a", 0, 0), (b"\0", 8, 1), (b"a\0\0", 16, 2), (b"", 8, 1)],
)
def test_columns_that_do_not_fit(names: bytes, inodes: int, types: int) -> None:
    with pytest.raises(ProtocolError):
        entries.names(pb.ListNamesReply(names=names, inodes=bytes(inodes), types=bytes(types)))
