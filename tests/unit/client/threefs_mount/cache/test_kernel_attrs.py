from threefs_mount.cache.kernel_attrs import MAX_INODES, KernelAttrCache
from threefs_mount.cache.validity import Validity

from threefs.wire import meta_pb2 as pb


def test_only_other_attributes_are_news() -> None:
    told = KernelAttrCache(Validity(1.0))
    assert told.differs(pb.Inode(inode=5, change=1), 0.0)
    told.record(pb.Inode(inode=5, change=1), 0.0)
    assert not told.differs(pb.Inode(inode=5, change=1), 0.1)
    assert told.differs(pb.Inode(inode=5, change=2), 0.1), "though its times and its length may be the same"
    told.invalidate(5, 0.5)
    assert told.differs(pb.Inode(inode=5, change=1), 0.6)


def test_the_kernel_may_keep_an_older_answer_until_that_expires() -> None:
    """It drops an answer if it has taken over another one since it asked, whatever that one says."""
    told = KernelAttrCache(Validity(1.0))
    old, new = pb.Inode(inode=5, change=1), pb.Inode(inode=5, change=2)
    told.record(old, 3.0)
    told.record(old, 2.9)
    told.record(new, 3.1)
    told.record(new, 3.9)
    assert told.differs(new, 3.9) and not told.differs(new, 4.0)
    told.invalidate(5, 4.5)
    told.record(new, 4.6)
    assert told.differs(new, 5.4) and not told.differs(new, 5.5)


def test_also_an_older_answer_to_a_listing() -> None:
    told = KernelAttrCache(Validity(1.0))
    old, new = pb.Inode(inode=5, change=1), pb.Inode(inode=5, change=2)
    for asked_s, inode in ((3.0, old), (3.1, new), (3.9, new)):
        told.record_all((5,), [inode.SerializeToString()], asked_s)
    assert told.differs(new, 3.9) and not told.differs(new, 4.0)
    told.record(pb.Inode(inode=5, change=3), 4.5)
    told.record_all((5,), [pb.Inode(inode=5, change=4).SerializeToString()], 4.6)
    assert told.differs(pb.Inode(inode=5, change=4), 5.4) and not told.differs(pb.Inode(inode=5, change=4), 5.5)


def test_what_an_inode_lacks_is_known_for_a_while() -> None:
    told = KernelAttrCache(Validity(1.0))
    assert not told.lacks_xattr(5, b"user.a", 0.0)
    told.record(pb.Inode(inode=5), 0.0)
    for name in (b"user.a", b"security.selinux", b"system.posix_acl_access", b"system.posix_acl_default"):
        assert told.lacks_xattr(5, name, 0.9) and not told.lacks_xattr(5, name, 1.0)
    told.record(pb.Inode(inode=5, xattr_bytes=7), 0.0)
    assert not told.lacks_xattr(5, b"user.a", 0.0) and told.lacks_xattr(5, b"system.posix_acl_access", 0.0)
    told.record(pb.Inode(inode=5, access_acl=pb.Acl()), 0.0)
    assert told.lacks_xattr(5, b"user.a", 0.0) and not told.lacks_xattr(5, b"system.posix_acl_access", 0.0)
    told.record(pb.Inode(inode=5, default_acl=pb.Acl()), 0.0)
    assert not told.lacks_xattr(5, b"system.posix_acl_default", 0.0)


def test_an_answer_from_before_a_change_says_nothing() -> None:
    told = KernelAttrCache(Validity(1.0))
    told.invalidate(5, 3.0)  # it has got an attribute
    told.record(pb.Inode(inode=5, change=1, moves=2), 2.9)
    assert not told.lacks_xattr(5, b"user.a", 3.1) and told.differs(pb.Inode(inode=5, change=1), 3.1)
    assert told.moves(5) == 2
    told.record(pb.Inode(inode=5, change=2), 3.0)
    assert told.lacks_xattr(5, b"user.a", 3.1) and not told.differs(pb.Inode(inode=5, change=2), 4.0)
    told.record(pb.Inode(inode=5, change=3, xattr_bytes=7), 3.2)
    told.record(pb.Inode(inode=5, change=1), 2.95)
    assert not told.lacks_xattr(5, b"user.a", 3.3)
    assert told.differs(pb.Inode(inode=5, change=3), 9.0), "which came last?"


def test_inodes_of_a_listing() -> None:
    inodes = [pb.Inode(inode=5, change=1), pb.Inode(inode=6, xattr_bytes=7)]
    told = KernelAttrCache(Validity(1.0))
    told.record_all((5, 6), [one.SerializeToString() for one in inodes], 3.0)
    for _ in range(2):
        assert not told.differs(inodes[0], 3.1) and told.differs(pb.Inode(inode=5, change=2), 3.1)
        assert told.lacks_xattr(5, b"user.a", 3.9) and not told.lacks_xattr(5, b"user.a", 4.0)
        assert not told.lacks_xattr(6, b"user.a", 3.9) and told.differs(pb.Inode(inode=7), 3.1)
    told.invalidate(6, 4.0)
    assert told.differs(inodes[1], 4.1)


def test_it_is_bounded() -> None:
    told = KernelAttrCache(Validity(1.0))
    for number in range(MAX_INODES + 10):
        told.record(pb.Inode(inode=number), 0.0)
    assert told.lacks_xattr(MAX_INODES, b"user.a", 0.0) and not told.lacks_xattr(9, b"user.a", 0.0)
    numbers = range(MAX_INODES + 10, MAX_INODES + 20)
    told.record_all(numbers, [b""] * len(numbers), 0.0)
    assert told.lacks_xattr(MAX_INODES + 19, b"user.a", 0.0) and not told.lacks_xattr(19, b"user.a", 0.0)
    assert len(told._inodes) == MAX_INODES


def test_the_count_of_moves_when_the_kernel_got_the_name() -> None:
    told = KernelAttrCache(Validity(1.0))
    assert told.moves(5) is None
    told.record(pb.Inode(inode=5, moves=3), 0.0, named=False)
    assert told.moves(5) is None, "nobody knows under which name the kernel has it"
    told.record(pb.Inode(inode=5, moves=3), 0.0)
    told.record(pb.Inode(inode=5, moves=4), 0.0, named=False)
    assert told.moves(5) == 3, "attributes say nothing of its name"
    told.record_move(pb.Inode(inode=5, moves=5))
    assert told.moves(5) == 3, "somebody else has moved it before"
    told.record(pb.Inode(inode=5, moves=5), 0.0)
    told.record_move(pb.Inode(inode=5, moves=6))
    assert told.moves(5) == 6
    told.invalidate(5, 0.5)
    assert told.moves(5) == 6, "other attributes do not change its name"
    assert told.differs(pb.Inode(inode=5), 0.6) and not told.lacks_xattr(5, b"user.a", 0.0)
    told.record_all([6], [pb.Inode(inode=6, moves=2).SerializeToString()], 0.0)
    told.record(pb.Inode(inode=6, moves=9), 0.0, named=False)
    assert told.moves(6) == 2


def test_a_former_name_that_the_kernel_may_still_have() -> None:
    told = KernelAttrCache(Validity(1.0))
    told.record(pb.Inode(inode=5, change=1, moves=1), 3.0)
    told.record_move(pb.Inode(inode=5, change=2, moves=2))
    told.record(pb.Inode(inode=5, change=2, moves=2), 3.1)
    assert not told.may_have_former_name(5, 3.2), "the kernel has moved that name itself"
    told.record(pb.Inode(inode=5, change=3, moves=3), 3.5)
    assert told.may_have_former_name(5, 4.0) and not told.may_have_former_name(5, 4.1)
    told.record(pb.Inode(inode=5, change=4, moves=4), 4.2, named=False)
    assert not told.may_have_former_name(5, 4.2), "it still has the former name only, which does not fit"
    told.record_all([5], [pb.Inode(inode=5, change=4, moves=4).SerializeToString()], 4.3)
    told.invalidate(5, 4.4)
    told.record(pb.Inode(inode=5, change=3, moves=4), 4.3)
    assert told.may_have_former_name(5, 5.1) and not told.may_have_former_name(5, 5.2)
    assert not told.may_have_former_name(6, 0.0)
