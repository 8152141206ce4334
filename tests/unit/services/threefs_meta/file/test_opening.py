"""What opening takes."""

import pytest
from threefs_meta.access.credentials import Credentials
from threefs_meta.file.opening import check_open

from threefs.errors import AccessDenied, InvalidArgument
from threefs.wire import meta_pb2 as pb

USER = Credentials(1, 1, frozenset(), False)


def test_a_session_or_a_cut_is_a_wish_to_write() -> None:
    readable = pb.Inode(type=pb.FILE, mode=0o444)
    check_open(readable, USER, pb.OpenRequest(access=4), "it")
    for request in (pb.OpenRequest(access=6), pb.OpenRequest(session=b"s" * 16), pb.OpenRequest(truncate=True)):
        with pytest.raises(AccessDenied):
            check_open(readable, USER, request, "it")


def test_only_files_have_content() -> None:
    with pytest.raises(InvalidArgument):
        check_open(pb.Inode(type=pb.FIFO, mode=0o666), USER, pb.OpenRequest(session=b"s" * 16), "it")


def test_who_may_not_write_is_told_that_first() -> None:
    with pytest.raises(AccessDenied):
        check_open(pb.Inode(type=pb.FIFO, mode=0), USER, pb.OpenRequest(session=b"s" * 16), "it")
