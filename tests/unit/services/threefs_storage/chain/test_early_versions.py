import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.chain.early_versions import Change, EarlyVersion, EarlyVersions

from threefs.ids import ChunkId, TargetId, WriteIdentity

A, B = ChunkId(1, 0), ChunkId(1, 1)
CHANGE = Change(2, WriteIdentity(b"c" * 16, 1, 7), 3, 1, 0, 5, 0xABCD)


def early(change: Change = CHANGE, since: float = 1.0, passed_to: int | None = 301) -> EarlyVersion:
    return EarlyVersion(change, since, TargetId(passed_to) if passed_to else None)


def test_only_the_very_same_change_is_the_same_write() -> None:
    """P2, P5: a version number, or the name of a write alone, does not say what the bytes are."""
    versions = EarlyVersions()
    versions.mark(A, early())
    assert versions.is_made_by(A, CHANGE) and not versions.is_made_by(B, CHANGE)
    others = [
        CHANGE._replace(version=3),
        CHANGE._replace(identity=WriteIdentity(b"c" * 16, 1, 8)),
        CHANGE._replace(identity=None),
        CHANGE._replace(stamp=4),
        CHANGE._replace(kind=2),
        CHANGE._replace(offset=1),
        CHANGE._replace(length=6),
        CHANGE._replace(checksum=0xABCE),
    ]
    assert not [change for change in others if versions.is_made_by(A, change)]


def test_a_version_that_was_taken_is_full() -> None:
    """P5, P6: the mark does not come back by itself."""
    versions = EarlyVersions()
    versions.mark(A, early())
    assert A in versions and B not in versions
    assert versions.take(A).passed_to == 301
    assert A not in versions and not versions.is_made_by(A, CHANGE)
    with pytest.raises(KeyError):
        versions.take(A)


def test_an_early_version_is_dropped_before_another_one_takes_its_place() -> None:
    """P12."""
    versions = EarlyVersions()
    versions.mark(A, early())
    with pytest.raises(AssertionError, match="P12"):
        versions.mark(A, early(CHANGE._replace(version=3)))
    versions.discard(A)
    versions.discard(A)
    versions.mark(A, early(CHANGE._replace(version=3)))
    assert not versions.is_made_by(A, CHANGE)


def test_what_was_lost_on_the_way_was_not_passed_on() -> None:
    """P5: the successor is not asked for what it lacks. News of an earlier change that had the place say nothing."""
    versions = EarlyVersions()
    assert not versions.was_passed_to(A, TargetId(301))
    versions.mark(A, early())
    assert versions.was_passed_to(A, TargetId(301)) and not versions.was_passed_to(A, TargetId(401))
    versions.note_not_passed(A, CHANGE._replace(identity=None))
    versions.note_not_passed(B, CHANGE)
    assert versions.was_passed_to(A, TargetId(301)) and B not in versions
    versions.note_not_passed(A, CHANGE)
    assert not versions.was_passed_to(A, TargetId(301)) and versions.take(A).passed_to is None
    versions.note_not_passed(A, CHANGE)
    assert A not in versions, "it is full"


def test_all_are_full_when_the_marks_are_cleared() -> None:
    """P7, P8."""
    versions = EarlyVersions()
    versions.mark(A, early())
    versions.mark(B, early())
    assert list(versions) == [A, B] and len(versions) == 2
    versions.clear()
    assert not len(versions) and A not in versions and not versions.older_than(10.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(0, 30))
def test_what_is_older_is_what_came_before(steps: list[tuple[int, bool]], since: int) -> None:
    versions = EarlyVersions()
    came: dict[ChunkId, int] = {}
    for now, (number, comes) in enumerate(steps):
        chunk = ChunkId(1, number)
        versions.discard(chunk)
        came.pop(chunk, None)
        if comes:
            versions.mark(chunk, early(since=float(now)))
            came[chunk] = now
    assert versions.older_than(float(since)) == [chunk for chunk, at in came.items() if at < since]
