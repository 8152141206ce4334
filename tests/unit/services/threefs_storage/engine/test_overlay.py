"""Overlays against a bytearray that every change is applied to."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.overlay import MAX_BLOB_BYTES, BlobKey, Extent, Overlay

from threefs.ids import ChunkId

CHUNK = ChunkId(7, 3)
BLOCK = bytes(range(1, 201))  # no byte is zero
MAX_LENGTH = 400

writes = st.tuples(st.just("write"), st.integers(0, MAX_LENGTH - 60), st.integers(0, 60))
cuts = st.tuples(st.just("cut"), st.just(0), st.integers(0, MAX_LENGTH))
extensions = st.tuples(st.just("extend"), st.just(0), st.integers(0, MAX_LENGTH))


class Content:
    """What a version shows: put together from block, blobs and overlay, and what it should be."""

    def __init__(self, base_length: int) -> None:
        self.overlay = Overlay(CHUNK, base_length)
        self.blobs: dict[int, bytes] = {}
        self.expected = bytearray(BLOCK[:base_length])

    def apply(self, kind: str, offset: int, length: int) -> None:
        if kind == "write":
            number = 1 + max(self.blobs, default=0)
            self.blobs[number] = bytes((200 + number + i) % 55 + 201 for i in range(length))
            self.overlay = self.overlay.written(offset, length, number)
            if length:
                self.expected.extend(bytes(max(0, offset + length - len(self.expected))))
                self.expected[offset : offset + length] = self.blobs[number]
        elif kind == "cut":
            self.overlay = self.overlay.cut(length)
            del self.expected[length:]
        else:
            self.expected.extend(bytes(max(0, length - len(self.expected))))
        self.blobs = {number: self.blobs[number] for number in self.overlay.blobs}

    def shown(self, begin: int, end: int) -> bytes:
        target = bytearray(end - begin)
        base = self.overlay.base_needed(begin, end)
        target[:base] = BLOCK[begin : begin + base]
        for extent in self.overlay.within(begin, end):
            data = self.blobs[extent.blob]
            assert len(data) == extent.blob_bytes
            part = data[extent.blob_offset : extent.blob_offset + extent.length]
            target[extent.offset - begin : extent.end - begin] = part
        assert len(target) == end - begin
        return bytes(target)


@given(base=st.integers(0, len(BLOCK)), steps=st.lists(st.one_of(writes, writes, cuts, extensions)), data=st.data())
def test_an_overlay_shows_what_was_written(base: int, steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    content = Content(base)
    for step in steps:
        content.apply(*step)
        length = len(content.expected)
        content.overlay.check(length, has_block=True)
        assert content.shown(0, length) == content.expected
        begin = data.draw(st.integers(0, length))
        end = data.draw(st.integers(begin, length))
        assert content.shown(begin, end) == content.expected[begin:end]
        assert content.overlay.stored_bytes == sum(map(len, content.blobs.values()))


@given(st.lists(writes, min_size=1))
def test_extents_do_not_overlap_and_a_blob_without_one_is_given_up(steps: list[tuple[str, int, int]]) -> None:
    content = Content(0)
    for step in steps:
        content.apply(*step)
    extents = content.overlay.extents
    assert list(extents) == sorted(extents)
    assert all(first.end <= second.offset for first, second in itertools.pairwise(extents))
    covered = content.overlay.written(0, MAX_LENGTH, 99)
    assert covered.blobs == {99: MAX_LENGTH}


def test_a_range_that_extents_cover_needs_no_byte_of_the_block() -> None:
    overlay = Overlay(CHUNK, 100).written(20, 30, 1).written(50, 50, 2)
    assert overlay.base_needed(20, 100) == 0
    assert overlay.base_needed(30, 60) == 0
    assert overlay.base_needed(0, 100) == 20
    assert overlay.base_needed(10, 200) == 10
    assert overlay.base_needed(100, 200) == 0
    assert Overlay(CHUNK, 100).written(20, 30, 1).base_needed(20, 100) == 80


def test_bytes_that_were_cut_off_do_not_come_back() -> None:
    content = Content(200)
    content.apply("write", 180, 40)
    content.apply("cut", 0, 150)
    content.apply("extend", 0, 210)
    assert content.shown(0, 210) == BLOCK[:150] + bytes(60)


@pytest.mark.parametrize(
    "extents",
    [
        (Extent(0, 0, 1, 0, 10),),
        (Extent(0, 10, 1, 1, 10),),
        (Extent(0, 10, 1, 0, 10), Extent(9, 5, 2, 0, 5)),
        (Extent(50, 10, 1, 0, 10), Extent(0, 5, 2, 0, 5)),
        (Extent(95, 10, 1, 0, 10),),
        (Extent(0, 10, 1, 0, MAX_BLOB_BYTES + 1),),
    ],
)
def test_an_overlay_that_no_version_has_is_refused(extents: tuple[Extent, ...]) -> None:
    with pytest.raises(ValueError):
        Overlay.of(CHUNK, 0, extents).check(100, has_block=True)


def test_a_base_must_lie_in_a_block() -> None:
    overlay = Overlay(CHUNK, 100)
    overlay.check(100, has_block=True)
    with pytest.raises(ValueError):
        overlay.check(99, has_block=True)
    with pytest.raises(ValueError):
        overlay.check(100, has_block=False)
    dataclasses.replace(overlay, base_length=0).check(100, has_block=False)


def test_keys_of_blobs_sort_by_chunk_and_number() -> None:
    keys = [BlobKey(ChunkId(i, j), number) for i in (1, 2) for j in (0, 300) for number in (1, 2, 70_000)]
    assert [key.encoded() for key in keys] == sorted(key.encoded() for key in keys)
