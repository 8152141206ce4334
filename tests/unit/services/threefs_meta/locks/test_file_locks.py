"""Rules of locks, against a model that knows each byte."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_meta.locks import file_locks

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

BYTES = 12


def lock(
    kind: pb.LockType, start: int = 0, end: int = file_locks.END, owner: int = 1, of: pb.LockKind = pb.RECORD_LOCK
) -> pb.FileLock:
    return pb.FileLock(kind=of, type=kind, owner=owner, start=start, end=end)


WANTED = st.builds(
    lambda kind, ends: lock(kind, min(ends), max(ends)),
    st.sampled_from([pb.UNLOCK, pb.SHARED, pb.EXCLUSIVE]),
    st.tuples(st.integers(0, BYTES - 1), st.integers(0, BYTES - 1)),
)


@given(st.lists(WANTED, max_size=12))
def test_an_owner_has_at_each_byte_what_it_asked_for_last(wishes: list[pb.FileLock]) -> None:
    held: list[pb.FileLock] = []
    model = [pb.UNLOCK] * BYTES
    for wish in wishes:
        held = file_locks.after_request(held, wish)
        model[wish.start : wish.end + 1] = [wish.type] * (wish.end + 1 - wish.start)
        shown = [pb.UNLOCK] * BYTES
        for one in held:
            assert one.type != pb.UNLOCK
            shown[one.start : one.end + 1] = [one.type] * (one.end + 1 - one.start)
        assert shown == model
        for one, following in pairwise(held):
            assert one.end < following.start
            assert one.type != following.type or one.end + 1 < following.start, "neighbours are joined"


@given(WANTED, WANTED)
def test_two_exclude_each_other_where_they_meet_and_one_is_exclusive(one: pb.FileLock, other: pb.FileLock) -> None:
    meet = bool(set(range(one.start, one.end + 1)) & set(range(other.start, other.end + 1)))
    kinds = {one.type, other.type}
    assert file_locks.conflicts(one, other) == (meet and pb.EXCLUSIVE in kinds and pb.UNLOCK not in kinds)


def test_the_kinds_do_not_see_each_other() -> None:
    assert not file_locks.conflicts(lock(pb.EXCLUSIVE), lock(pb.EXCLUSIVE, of=pb.FLOCK))
    assert not file_locks.same_owner(lock(pb.EXCLUSIVE), lock(pb.EXCLUSIVE, of=pb.FLOCK))
    assert file_locks.same_owner(lock(pb.EXCLUSIVE), lock(pb.SHARED))


def test_the_first_in_the_way() -> None:
    held = [lock(pb.EXCLUSIVE, 8, 9), lock(pb.SHARED, 0, 3), lock(pb.EXCLUSIVE, 5, 6)]
    assert file_locks.first_conflict(held, lock(pb.SHARED)) == held[2]
    assert file_locks.first_conflict(held, lock(pb.EXCLUSIVE)) == held[1]
    assert file_locks.first_conflict(held, lock(pb.SHARED, 10, 11)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lock(pb.SHARED, 2, 1),
        lock(pb.LOCK_TYPE_UNSPECIFIED),
        lock(pb.SHARED, of=pb.LOCK_KIND_UNSPECIFIED),
        lock(pb.SHARED, 1, of=pb.FLOCK),
    ],
)
def test_invalid_locks_are_refused(wrong: pb.FileLock) -> None:
    with pytest.raises(InvalidArgument):
        file_locks.check(wrong)
    file_locks.check(lock(pb.SHARED, 5, 5))
    file_locks.check(lock(pb.SHARED, of=pb.FLOCK))
