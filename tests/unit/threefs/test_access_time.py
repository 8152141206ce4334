import pytest

from threefs.access_time import DAY_NS, due_ns
from threefs.wire import meta_pb2 as pb


@pytest.mark.parametrize(
    ("atime", "mtime", "ctime", "due"),
    [(5, 5, 5, 0), (5, 4, 5, 0), (5, 5, 4, 0), (5, 6, 4, 0), (6, 5, 5, 6 + DAY_NS), (0, 0, 0, 0)],
)
def test_after_a_change_at_once_else_after_a_day(atime: int, mtime: int, ctime: int, due: int) -> None:
    assert due_ns(pb.Inode(atime_ns=atime, mtime_ns=mtime, ctime_ns=ctime)) == due
