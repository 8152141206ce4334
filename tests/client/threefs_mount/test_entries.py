import stat

from threefs_mount import entries

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
