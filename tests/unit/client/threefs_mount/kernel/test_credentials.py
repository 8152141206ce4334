import os

from threefs_fuse.requests import Caller
from threefs_mount.kernel import credentials

from threefs.wire import meta_pb2 as pb


def test_groups_are_looked_up() -> None:
    caller = credentials.from_kernel(Caller(1000, 100, os.getpid()))
    assert (caller.uid, caller.gid) == (1000, 100)
    assert sorted(caller.groups) == sorted(os.getgroups())


def test_groups_of_a_writer_are_looked_up_where_they_matter() -> None:
    caller = Caller(1000, 100, os.getpid())
    assert not credentials.writer(caller, pb.Inode(mode=0o777)).groups
    assert sorted(credentials.writer(caller, pb.Inode(mode=0o2666)).groups) == sorted(os.getgroups())


def test_what_the_kernel_tells_counts() -> None:
    assert credentials.from_kernel(Caller(1000, 100, 0, (7,))).groups == [7]


def test_root_and_processes_that_are_gone_have_none() -> None:
    assert not credentials.from_kernel(Caller(0, 0, os.getpid())).groups
    assert not credentials.from_kernel(Caller(1000, 100, 0)).groups
    assert not credentials.from_kernel(Caller(1000, 100, 1 << 30)).groups


def test_the_text_of_the_kernel() -> None:
    assert credentials.groups_in(b"Name:\tsh\nGroups:\t4 24 1000 \nNStgid:\t1\n") == [4, 24, 1000]
    assert credentials.groups_in(b"Name:\tsh\nGroups:\t\nNStgid:\t1\n") == []
    assert len(credentials.groups_in(b"\nGroups:\t" + b"7 " * 5000 + b"\n")) == 1024
