import pytest

from threefs.inflight_ranges import is_in_flight, writer_of
from threefs.wire import meta_pb2 as pb

SESSION = b"s" * 16


def test_the_number_of_a_session_does_not_tell_it() -> None:
    assert writer_of(SESSION) == writer_of(SESSION) != writer_of(b"t" * 16)
    assert 0 < writer_of(SESSION) < 1 << 64
    assert writer_of(SESSION) != int.from_bytes(SESSION[:8], "big")


@pytest.mark.parametrize(("offset", "end", "expected"), [(0, 10, 0), (0, 11, 1), (19, 30, 1), (20, 30, 0)])
def test_of_an_append_its_own_bytes_are_in_flight(offset: int, end: int, expected: int) -> None:
    inode = pb.Inode(length=100, appends=[pb.Append(writer=writer_of(SESSION), offset=10, end=20)])
    assert is_in_flight(inode, offset, end) == is_in_flight(inode, offset, end, b"t" * 16) == expected
    assert not is_in_flight(inode, offset, end, SESSION)


@pytest.mark.parametrize(("length", "end", "expected"), [(0, 1, True), (10, 10, False), (10, 11, True)])
def test_of_a_file_that_is_being_cut_what_lies_behind_is_in_flight(length: int, end: int, expected: bool) -> None:
    assert is_in_flight(pb.Inode(length=100, cutting=length + 1), 0, end, SESSION) == expected


def test_mostly_nothing_is() -> None:
    assert not is_in_flight(pb.Inode(length=100), 0, 100)
