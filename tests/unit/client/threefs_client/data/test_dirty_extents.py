from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_client.data.dirty_extents import DirtyExtents, _Pieces, clip, covers, overlay

CHUNK = 16


def content(extents: list[tuple[int, memoryview]], size: int) -> bytes:
    whole = bytearray(size)
    for offset, data in extents:
        whole[offset : offset + len(data)] = data
    return bytes(whole)


@given(st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=20))
def test_the_last_write_of_a_byte_counts(writes: list[tuple[int, bytes]]) -> None:
    held, model = DirtyExtents(CHUNK), bytearray(100)
    written = set[int]()
    for offset, data in writes:
        held.add(offset, data)
        model[offset : offset + len(data)] = data
        written.update(range(offset, offset + len(data)))
        assert held.size == len(written)
    assert held.end == max((offset + len(data) for offset, data in writes), default=0)
    extents = held.drain()
    assert sum(len(data) for _, data in extents) == len(written)
    assert all(offset // CHUNK == (offset + len(data) - 1) // CHUNK for offset, data in extents)
    assert content(extents, 100) == bytes(model)
    assert held.size == held.end == 0 and held.drain() == []


def test_small_pieces_become_one() -> None:
    held = DirtyExtents(CHUNK)
    for number in range(CHUNK):
        held.add(number, b"x")
    assert [(offset, bytes(data)) for offset, data in held.drain()] == [(0, b"x" * CHUNK)]


def test_extents_are_copies() -> None:
    held, data = DirtyExtents(CHUNK), bytearray(b"x" * CHUNK)
    held.add(CHUNK, memoryview(data))
    data[:] = b"y" * CHUNK
    assert bytes(held.drain()[0][1]) == b"x" * CHUNK


@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=20),
    st.integers(0, 90),
    st.integers(1, 30),
)
def test_a_range_is_read_with_its_unsent_bytes(writes: list[tuple[int, bytes]], offset: int, length: int) -> None:
    held, model, written = DirtyExtents(CHUNK), bytearray(200), bytearray(200)
    for at, data in writes:
        held.add(at, data)
        model[at : at + len(data)] = data
        written[at : at + len(data)] = b"w" * len(data)
    view = memoryview(bytearray(length))
    over = held.copies_of(offset, length)
    assert covers(over, offset, length) == (written[offset : offset + length] == b"w" * length)
    overlay(over, offset, view)
    assert bytes(view) == bytes(model[offset : offset + length])
    held.add(offset, b"later")  # which what was found of it knows nothing of
    overlay(over, offset, view)
    assert bytes(view) == bytes(model[offset : offset + length])
    overlay(clip(held.drain(), offset, length), offset, view)
    model[offset : offset + 5] = b"later"
    assert bytes(view) == bytes(model[offset : offset + length])


def test_what_lies_beside_is_not_found() -> None:
    held = DirtyExtents(CHUNK)
    held.add(10, b"ab")
    assert not held.copies_of(8, 2) and not held.copies_of(12, 5)
    assert [(at, bytes(data)) for at, data in (*held.copies_of(11, 1), *held.copies_of(0, 11))] == [
        (11, b"b"),
        (10, b"a"),
    ]


def chunks_of(extents: list[tuple[int, memoryview]]) -> set[int]:
    return {offset // CHUNK for offset, _ in extents}


@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=5),
    st.integers(0, 3 * CHUNK),
)
def test_chunks_that_are_being_filled_stay_and_nothing_is_lost_or_turned_round(
    writes: list[tuple[int, bytes]], later: list[tuple[int, bytes]], keep_bytes: int
) -> None:
    held, model = DirtyExtents(CHUNK, keep_bytes), bytearray(100)
    newest = -1
    for offset, data in writes:
        held.add(offset, data)
        model[offset : offset + len(data)] = data
        newest = (offset + len(data) - 1) // CHUNK
    ready = held.ready_bytes
    partial = {n for n in range(7) if 0 < sum(len(p) for _, p in held.copies_of(n * CHUNK, CHUNK)) < CHUNK}
    taken = held.drain_ready()
    kept = chunks_of(held.copies_of(0, 100))
    assert held.size == sum(len(data) for _, data in held.copies_of(0, 100))
    assert held.end == max((offset + len(data) for offset, data in held.copies_of(0, 100)), default=0)
    assert sum(len(data) for _, data in taken) >= ready
    assert kept <= partial and not kept & chunks_of(taken)
    assert bool(kept) == bool(partial) and (newest in kept or newest not in partial)
    assert len(kept) <= 1 or held.size <= keep_bytes
    stored = bytearray(content(taken, 100))
    for offset, data in later:
        held.add(offset, data)
        model[offset : offset + len(data)] = data
    for offset, rest in held.drain():
        stored[offset : offset + len(rest)] = rest
    assert stored == model and held.ready_bytes == held.pieces == 0


def test_a_chunk_that_writers_fill_in_turns_is_one_extent() -> None:
    held = DirtyExtents(CHUNK)
    for offset in (0, 8, 4, 12):
        held.add(offset, bytes([offset]) * 4)
    assert [(offset, bytes(data)) for offset, data in held.drain()] == [
        (0, bytes(n for n in (0, 4, 8, 12) for _ in range(4)))
    ]


def test_the_chunks_that_were_written_last_stay() -> None:
    held = DirtyExtents(CHUNK, 2 * CHUNK)
    for number in (3, 0, 2, 1, 0):
        held.add(number * CHUNK, b"x" * (CHUNK // 2 + 1))
    assert chunks_of(held.drain_ready()) == {3} and chunks_of(held.copies_of(0, 100)) == {0, 1, 2}


@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=10),
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=40)), max_size=10),
)
def test_what_is_put_back_lies_below_what_came_later(
    first: list[tuple[int, bytes]], later: list[tuple[int, bytes]]
) -> None:
    held, model = DirtyExtents(CHUNK), bytearray(100)
    for offset, data in first:
        held.add(offset, data)
        model[offset : offset + len(data)] = data
    failed = held.drain()
    for offset, data in later:
        held.add(offset, data)
        model[offset : offset + len(data)] = data
    size = held.size
    overwritten = held.put_back(failed)
    assert held.size == size + sum(len(data) for _, data in failed) - overwritten
    assert held.end == max((offset + len(data) for offset, data in (*first, *later)), default=0)
    extents = held.drain()
    assert content(extents, 100) == bytes(model)


def test_a_bytearray_is_taken_over_without_a_copy() -> None:
    held, data = DirtyExtents(CHUNK), bytearray(b"x" * CHUNK)
    held.add(0, data)
    assert held.drain()[0][1].obj is data


def test_what_there_is_no_memory_to_join_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of that chunk, and of those before it, were gone."""
    held, model, join = DirtyExtents(CHUNK), bytearray(3 * CHUNK), _Pieces.join
    for offset in reversed(range(3 * CHUNK)):
        held.add(offset, bytes([offset]))
        model[offset] = offset
    left = [1, 0]

    def failing(self: _Pieces) -> None:
        if not left.pop():
            join(self)
            return
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(_Pieces, "join", failing)
        with pytest.raises(MemoryError):
            held.drain()
    assert (held.size, held.end, held.pieces) == (3 * CHUNK, 3 * CHUNK, 2 * CHUNK + 1), "one is joined"
    extents = held.drain()
    assert [len(data) for _, data in extents] == [CHUNK] * 3 and content(extents, 3 * CHUNK) == model
    assert held.size == held.end == held.pieces == held.ready_bytes == 0


def test_what_is_put_back_is_not_copied() -> None:
    held, data = DirtyExtents(CHUNK), bytearray(b"x" * CHUNK)
    held.add(0, data)
    failed = held.drain()
    held.put_back(failed)
    assert held.drain()[0][1].obj is data, "maybe it has failed for want of memory"
    held.put_back(failed)
    held.add(0, b"later")
    assert content(held.drain(), CHUNK) == b"later" + b"x" * (CHUNK - 5)
    assert data == b"x" * CHUNK, "it may be on its way"


class Uncopied(bytes):
    """There is no memory for a copy of a part of these."""

    def __getitem__(self, _: object) -> Any:
        raise MemoryError


def test_what_there_is_no_memory_to_write_over_stays() -> None:
    held = DirtyExtents(CHUNK)
    held.add(4, Uncopied(b"x" * 12))
    with pytest.raises(MemoryError):
        held.add(2, b"later")
    assert (held.size, held.end, held.pieces) == (12, CHUNK, 1)
    assert [(offset, bytes(data)) for offset, data in held.drain()] == [(4, b"x" * 12)]
    assert held.size == held.end == held.pieces == held.ready_bytes == 0


def test_a_chunk_for_whose_first_bytes_there_is_no_memory_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    held = DirtyExtents(CHUNK)
    held.add(0, bytearray(CHUNK))
    with monkeypatch.context() as patched:
        patched.setattr(_Pieces, "put", fail)
        with pytest.raises(MemoryError):
            held.add(CHUNK - 3, b"later")
    assert (held.size, held.end, held.pieces) == (CHUNK, CHUNK, 1)
    assert content(held.drain_ready(), CHUNK) == bytes(CHUNK - 3) + b"lat" and held.size == held.end == 0
    held.add(CHUNK, b"er")
    assert content(held.drain(), CHUNK + 2) == bytes(CHUNK) + b"er"
