import os

import pytest
from threefs_client import credentials

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb


def test_a_process_acts_as_its_user() -> None:
    found = credentials.process_caller()
    assert (found.uid, found.gid, list(found.groups)) == (os.geteuid(), os.getegid(), os.getgroups())


@pytest.mark.parametrize(("uid", "gid", "groups"), [(-1, 0, ()), (0, 1 << 32, ()), (0, 0, (-1,)), (0, 0, range(1025))])
def test_invalid_users_are_refused(uid: int, gid: int, groups: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument):
        credentials.caller_of(uid, gid, groups)


@pytest.mark.parametrize(
    ("caller", "mode", "surely"),
    [
        (credentials.caller_of(0, 0, ()), 0o000, True),
        (credentials.caller_of(1, 9, ()), 0o400, True),
        (credentials.caller_of(1, 9, (2,)), 0o044, False),  # the first class that fits decides
        (credentials.caller_of(5, 2, ()), 0o040, True),
        (credentials.caller_of(5, 9, (2,)), 0o040, True),
        (credentials.caller_of(5, 9, (2,)), 0o404, False),
        (credentials.caller_of(5, 9, ()), 0o004, True),
        (credentials.caller_of(5, 9, ()), 0o770, False),
    ],
)
def test_users_that_may_surely_read(caller: pb.Caller, mode: int, surely: bool) -> None:
    inode = pb.Inode(uid=1, gid=2, mode=mode)
    assert credentials.mode_permits_read(caller, inode) is surely
    inode.access_acl.SetInParent()
    assert credentials.mode_permits_read(caller, inode) is (surely and caller.uid in (0, 1))
