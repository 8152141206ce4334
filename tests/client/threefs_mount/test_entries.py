import stat

import pytest

from threefs.wire import meta_pb2 as pb

pytest.importorskip("pyfuse3", reason="pyfuse3 is not installed (the extra `fuse`)")


def test_attributes_come_over_whole() -> None:
    from threefs_mount import entries

    inode = pb.Inode(inode=1 << 40, type=pb.FILE, mode=0o4755, uid=5, gid=6, nlink=2, length=1025)
    inode.atime_ns, inode.mtime_ns, inode.ctime_ns = 10**18 + 1, 2, -(10**9) + 5
    shown = entries.entry(inode, 1.5)
    assert shown.st_ino == 1 << 40 and shown.st_mode == stat.S_IFREG | 0o4755
    assert (shown.st_uid, shown.st_gid, shown.st_nlink, shown.st_size, shown.st_blocks) == (5, 6, 2, 1025, 3)
    assert (shown.st_atime_ns, shown.st_mtime_ns, shown.st_ctime_ns) == (10**18 + 1, 2, -(10**9) + 5)
    assert shown.attr_timeout == shown.entry_timeout == 1.5


def test_the_length_of_a_link_is_that_of_its_target() -> None:
    from threefs_mount import entries

    shown = entries.entry(pb.Inode(inode=2, type=pb.SYMLINK, target=b"there"), 1)
    assert shown.st_size == 5 and stat.S_ISLNK(shown.st_mode)


def test_nothing_is_nothing_only_now() -> None:
    from threefs_mount import entries

    assert entries.absent().st_ino == 0 and entries.absent().entry_timeout == 0


def test_space_counts_content() -> None:
    from threefs_mount import entries

    shown = entries.space(pb.StatFsReply(capacity_bytes=3 << 30, free_bytes=3 << 20, inodes=7, replicas=3))
    assert shown.f_blocks * shown.f_frsize == 1 << 30
    assert shown.f_bavail * shown.f_frsize == 1 << 20
    assert shown.f_files - shown.f_ffree == 7
