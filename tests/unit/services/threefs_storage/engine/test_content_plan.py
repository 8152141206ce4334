import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import (
    ContentPlan,
    Kind,
    Update,
    changed_checksums,
    covering,
    expected_checksum,
    partly_kept_blocks,
    plan,
)

from tests.harness.chunk_machine import expected
from threefs.checksums import block_crcs, combine, crc32c
from threefs.errors import InvalidArgument
from threefs.wire import storage_pb2

SIZE = 4096


def version_of(data: bytes) -> Version:
    crcs = block_crcs(data, SIZE)
    return Version(1, 1, len(data), crc32c(data), None, SIZE, crcs)


def test_kinds_are_those_of_the_wire() -> None:
    """To forget and to collect are no changes: they leave no version. Pieces become a plain write before."""
    others = ("FORGET", "COLLECT", "WRITE_PIECES")
    assert {kind.name: kind.value for kind in Kind} == {
        name: number for name, number in storage_pb2.WriteKind.items() if number and name not in others
    }


@pytest.mark.parametrize(
    ("kind", "offset", "length", "expected"),
    [
        (Kind.WRITE, 0, 10, ContentPlan(100, 100, 0, 10)),
        (Kind.WRITE, 95, 10, ContentPlan(105, 100, 95, 10)),
        (Kind.WRITE, 200, 10, ContentPlan(210, 100, 200, 10)),
        (Kind.TRUNCATE, 0, 40, ContentPlan(40, 40, 0, 0)),
        (Kind.TRUNCATE, 0, 140, ContentPlan(140, 100, 0, 0)),
        (Kind.EXTEND, 0, 40, ContentPlan(100, 100, 0, 0)),
        (Kind.EXTEND, 0, 140, ContentPlan(140, 100, 0, 0)),
        (Kind.REMOVE, 0, 0, ContentPlan(0, 0, 0, 0)),
        (Kind.REPLACE, 0, 7, ContentPlan(7, 0, 0, 7)),
    ],
)
def test_plans(kind: Kind, offset: int, length: int, expected: ContentPlan) -> None:
    assert plan(100, Update(kind, 1, 1, offset, length)) == expected


@pytest.mark.parametrize(
    ("offset", "length", "appends", "whole"),
    [(0, 10, False, False), (99, 1, False, False), (100, 1, True, False), (150, 1, True, False), (0, 100, False, True)],
)
def test_appends_and_whole_writes(offset: int, length: int, appends: bool, whole: bool) -> None:
    made = plan(100, Update(Kind.WRITE, 1, 1, offset, length))
    assert made.appends(100) is appends
    assert made.whole is whole


def test_a_cut_is_no_append_and_an_extension_is() -> None:
    assert not plan(100, Update(Kind.TRUNCATE, 1, 1, 0, 99)).appends(100)
    assert plan(100, Update(Kind.TRUNCATE, 1, 1, 0, 100)).appends(100)
    assert plan(100, Update(Kind.EXTEND, 1, 1, 0, 101)).appends(100)


@pytest.mark.parametrize(
    "update",
    [
        Update(Kind.WRITE, 1, 1, 90, 11, chunk_bytes=100),
        Update(Kind.TRUNCATE, 1, 1, 0, 101, chunk_bytes=100),
        Update(Kind.WRITE, 1, 1, -1, 5),
        Update(Kind.TRUNCATE, 1, 1, 0, -1),
        Update(9, 1, 1),
        Update(Kind.WRITE, 1, 1, 0, 5, chunk_bytes=(64 << 20) + 1),
    ],
)
def test_a_change_that_does_not_fit_is_refused(update: Update) -> None:
    with pytest.raises(InvalidArgument):
        plan(0, update)


def assert_checksums_follow(old: bytes, update: Update) -> None:
    """From the new bytes, and from the old ones of the checksum blocks that are partly kept."""
    payload = b"\xee" * update.length if update.kind == Kind.WRITE else b""
    changed = expected(old, Kind(update.kind), update.offset, update.length, payload) or b""
    made = plan(len(old), update)
    kept = {n: old[n * SIZE : (n + 1) * SIZE] for n in partly_kept_blocks(len(old), SIZE, made)}
    assert len(kept) <= 2
    found = changed_checksums(version_of(old), SIZE, made, memoryview(payload), kept)
    assert found == (block_crcs(changed, SIZE), crc32c(changed))


@given(
    old=st.integers(0, 20_000),
    kind=st.sampled_from([Kind.WRITE, Kind.TRUNCATE, Kind.EXTEND]),
    offset=st.one_of(st.integers(0, 5).map(lambda i: i * SIZE), st.integers(0, 20_000)),
    length=st.one_of(st.integers(1, 3).map(lambda i: i * SIZE), st.integers(1, 9_000)),
)
def test_checksums_of_a_change_follow_from_few_bytes(old: int, kind: Kind, offset: int, length: int) -> None:
    content = bytes(i * 31 % 251 for i in range(old))
    assert_checksums_follow(content, Update(kind, 1, 1, offset if kind == Kind.WRITE else 0, length))


def test_checksums_of_an_append_need_no_old_byte() -> None:
    for old in (0, 1, SIZE - 1, SIZE, SIZE + 1):
        for offset in (old, old + 1, old + 3 * SIZE):
            assert not partly_kept_blocks(old, SIZE, plan(old, Update(Kind.WRITE, 1, 1, offset, 100)))
        assert not partly_kept_blocks(old, SIZE, plan(old, Update(Kind.EXTEND, 1, 1, 0, old + 100)))


def test_whole_checksum_blocks_need_no_old_byte() -> None:
    for offset, length in ((0, SIZE), (SIZE, 2 * SIZE), (2 * SIZE, 100)):
        assert not partly_kept_blocks(
            2 * SIZE + 50, SIZE, plan(2 * SIZE + 50, Update(Kind.WRITE, 1, 1, offset, length))
        )


@given(data=st.data(), length=st.integers(1, 40_000))
def test_the_checksum_of_covering_blocks(data: st.DataObject, length: int) -> None:
    content = bytes(i * 31 % 251 for i in range(length))
    version = version_of(content)
    offset = data.draw(st.integers(0, length - 1))
    count = data.draw(st.integers(1, length - offset))
    begin, end = covering(version, offset, count)
    assert begin % SIZE == 0
    assert begin <= offset < begin + SIZE
    assert end == length or end % SIZE == 0
    assert offset + count <= end < offset + count + SIZE
    assert expected_checksum(version, begin, end) == crc32c(content[begin:end])
    assert combine(version.block_checksums, SIZE, (length - 1) % SIZE + 1) == version.checksum
