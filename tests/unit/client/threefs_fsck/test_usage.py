from threefs_fsck.usage import UsageCount

from threefs.wire import meta_pb2 as pb


def usage(account: bytes, size: int, inodes: int, changes: int = 0) -> pb.FsckUsage:
    return pb.FsckUsage(account=account, bytes=size, inodes=inodes, changes=changes)


def test_what_the_sums_lack() -> None:
    count = UsageCount([usage(b"right", 3, 2), usage(b"less", 1, 1), usage(b"of nothing", 5, 1)])
    count.add([usage(b"right", 1, 1), usage(b"less", 10, 1), usage(b"not kept", 0, 1)])
    count.add([usage(b"right", 2, 1), usage(b"less", 0, 1)])
    assert count.differences() == {b"less": (9, 1), b"of nothing": (-5, -1), b"not kept": (0, 1)}


def test_what_is_looked_at_again() -> None:
    count = UsageCount([usage(b"a", 1, 1, changes=4)])
    count.add([usage(b"b", 2, 2)])
    first, second = count.subjects([b"a", b"b"])
    assert (first.kept, first.counted) == (usage(b"a", 1, 1, changes=4), usage(b"a", 0, 0))
    assert (second.kept, second.counted) == (usage(b"b", 0, 0), usage(b"b", 2, 2))
