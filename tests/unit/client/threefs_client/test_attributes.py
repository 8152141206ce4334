import pickle
import stat

from threefs_client import Attributes, attributes

from threefs.wire import meta_pb2 as pb


def test_a_file() -> None:
    layout = pb.Layout(chunk_bytes=1 << 20, table_id=1, stripe=3, seed=9)
    inode = pb.Inode(inode=7, type=pb.FILE, mode=0o640, uid=1, gid=2, nlink=3, length=44, mtime_ns=-5, layout=layout)
    inode.change = 12
    found = Attributes(inode)
    assert (found.inode, found.mode, found.uid, found.gid, found.nlink, found.length) == (7, 0o640, 1, 2, 3, 44)
    assert found.is_file
    assert not found.is_directory
    assert (found.mtime_ns, found.change) == (-5, 12)
    assert found.layout is not None
    assert (found.layout.stripe, found.layout.seed) == (3, 9)
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o640


def test_a_directory_and_a_symlink() -> None:
    directory = Attributes(pb.Inode(inode=1, type=pb.DIRECTORY, mode=0o755, layout=pb.Layout(stripe=2)))
    assert directory.is_directory
    assert directory.layout is None
    assert stat.S_ISDIR(directory.st_mode)
    link = Attributes(pb.Inode(inode=2, type=pb.SYMLINK, target="ä".encode()))
    assert link.is_symlink
    assert (link.target, link.length) == ("ä", 2)


def test_every_type_of_inode_has_its_kind_and_bits() -> None:
    checks = {
        pb.FIFO: stat.S_ISFIFO,
        pb.SOCKET: stat.S_ISSOCK,
        pb.CHARACTER_DEVICE: stat.S_ISCHR,
        pb.BLOCK_DEVICE: stat.S_ISBLK,
    }
    for kind, check in checks.items():
        found = Attributes(pb.Inode(inode=2, type=kind, mode=0o600, rdev=259))
        assert check(found.st_mode)
        assert not (found.is_file or found.is_directory or found.is_symlink)
        assert found.rdev == 259


def test_entries_with_and_without_attributes() -> None:
    bare = attributes.of_entry(pb.Entry(name=b"\xff", inode=3, type=pb.DIRECTORY))
    assert (bare.name, bare.attributes, bare.is_directory) == ("\udcff", None, True)
    full = attributes.of_entry(pb.Entry(name=b"a", inode=3, type=pb.SYMLINK, attributes=pb.Inode(type=pb.SYMLINK)))
    assert full.attributes is not None
    assert full.attributes.is_symlink


def test_space() -> None:
    reply = pb.StatFsReply(capacity_bytes=9, used_bytes=4, free_bytes=5, inodes=2, replicas=3)
    assert attributes.of_space(reply) == attributes.Space(9, 4, 5, 2, 3)


def test_attributes_are_values() -> None:
    inode = pb.Inode(inode=7, type=pb.FILE, mode=0o640, layout=pb.Layout(chunk_bytes=1 << 20, table_id=1, stripe=3))
    one, other = Attributes(inode), Attributes(pb.Inode.FromString(inode.SerializeToString()))
    assert one == other and hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    assert one != Attributes(pb.Inode(inode=7, type=pb.FIFO)) and one != 7
    assert "inode=7" in repr(one) and "kind='file'" in repr(one)
