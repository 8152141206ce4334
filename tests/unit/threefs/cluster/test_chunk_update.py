from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs.checksums import crc32c
from threefs.cluster.chunk_client import ChunkLimits
from threefs.cluster.chunk_update import ChunkUpdate, cut, join
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.layout import MAX_CHUNK_BYTES
from threefs.rpc import methods
from threefs.rpc.limits import Limits
from threefs.wire import storage_pb2 as pb

CHUNK_BYTES = 200


def update(offset: int, payload: bytes, number: int = 0, **more: Any) -> ChunkUpdate:
    chunk = ChunkId(InodeId(7), number)
    return ChunkUpdate(ChainId(1 + number), chunk, pb.WRITE, CHUNK_BYTES, offset, len(payload), payload, **more)


def shapes(updates: Sequence[ChunkUpdate], *, takes: bool = True) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(one.update.offset, one.updates, one.update.pieces) for one in join(updates, lambda chain: takes)]


def test_neighbours_become_one_change() -> None:
    near = [update(10, b"a" * 4), update(20, b"b" * 4), update(24, b"c" * 4)]
    (joined,) = join(near, lambda chain: True)
    assert joined.update.kind == pb.WRITE_PIECES and joined.updates == 3
    assert joined.update.pieces == (10, 4, 20, 4, 24, 4) and joined.update.payload == b"aaaabbbbcccc"
    assert (joined.update.offset, joined.update.length) == (10, 12)


def test_writes_that_touch_are_a_plain_write() -> None:
    """The head need not read what lies between them."""
    (joined,) = join([update(10, b"a" * 4), update(14, b"b" * 4), update(18, b"c")], lambda chain: True)
    assert (joined.update.kind, joined.update.offset, joined.update.length) == (pb.WRITE, 10, 9)
    assert b"".join(joined.update.payload_parts) == b"aaaabbbbc" and joined.updates == 3


def test_what_does_not_belong_together_stays_apart() -> None:
    one = update(10, b"a" * 4)
    far, before, over = update(31, b"b" * 4), update(2, b"b" * 4), update(12, b"b" * 4)
    other_chunk, other_fence = update(14, b"b" * 4, 1), update(14, b"b" * 4, fence=2)
    named, empty = update(14, b"b" * 4, only_version=3), update(14, b"")
    for other in (far, before, over, other_chunk, other_fence, named, empty):
        assert [count for _, count, _ in shapes([one, other])] == [1, 1]
    extend = ChunkUpdate(one.chain, one.chunk, pb.EXTEND, CHUNK_BYTES, length=20)
    assert [count for _, count, _ in shapes([one, extend, update(14, b"b" * 4)])] == [1, 1, 1]
    assert shapes([one, update(14, b"b" * 4)], takes=False) == [(10, 1, ()), (14, 1, ())]


def test_a_change_has_a_bounded_number_of_pieces() -> None:
    many = [update(at, b"x") for at in range(150)] + [update(at, b"y") for at in range(150)]
    assert [count for _, count, _ in shapes(many)] == [150, 150]
    chunk = ChunkId(InodeId(7), 0)
    many = [ChunkUpdate(ChainId(1), chunk, pb.WRITE, 1000, at, 1, b"x") for at in range(300)]
    assert [count for _, count, _ in shapes(many)] == [256, 44]


def test_large_payloads_are_not_copied() -> None:
    """A caller may have any amount to write, and only what is in flight is counted."""
    whole = memoryview(bytes(range(256)) * 512)
    chunk = ChunkId(InodeId(7), 0)
    parts = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    many = [ChunkUpdate(ChainId(1), chunk, pb.WRITE, 1 << 20, n * 4097, 4096, part) for n, part in enumerate(parts)]
    ((joined, count),) = join(many, lambda chain: True)
    assert count == len(parts) and joined.length == joined.payload_bytes == len(whole)
    assert all(one is other for one, other in zip(joined.payload_parts, parts, strict=True))
    assert joined.checksum() == crc32c(whole)


@given(st.lists(st.tuples(st.integers(0, 150), st.binary(max_size=30), st.integers(0, 1)), max_size=20))
def test_joined_changes_make_the_same_chunks(writes: list[tuple[int, bytes, int]]) -> None:
    updates = [update(*each) for each in writes]
    apart, together = [bytearray(CHUNK_BYTES) for _ in range(2)], [bytearray(CHUNK_BYTES) for _ in range(2)]
    for offset, payload, number in writes:
        apart[number][offset : offset + len(payload)] = payload
    joined = join(updates, lambda chain: True)
    assert sum(each.updates for each in joined) == len(updates)
    for change, _ in joined:
        pieces, at = change.pieces or (change.offset, change.length), 0
        for offset, length in zip(pieces[::2], pieces[1::2], strict=True):
            together[change.chunk.number][offset : offset + length] = change.payload[at : at + length]
            at += length
    assert together == apart


@given(st.lists(st.integers(0, 9)), st.integers(1, 20), st.integers(1, 4))
def test_rows_are_cut_in_their_order_where_a_request_would_become_too_large(
    sizes: list[int], most_bytes: int, most_rows: int
) -> None:
    parts = list(cut(sizes, lambda size: size, most_bytes, most_rows))
    assert [size for part in parts for size in part] == sizes
    assert all(0 < len(part) <= most_rows and (sum(part) <= most_bytes or len(part) == 1) for part in parts)
    for part, after in pairwise(parts):
        assert len(part) == most_rows or sum(part) + after[0] > most_bytes, "it is cut only there"


@pytest.mark.parametrize("size", [10, 32, 98])
def test_the_largest_request_that_is_cut_is_one_that_services_take(size: int) -> None:
    """Pieces of 10 or 98 bytes looked like rows, and bodies of more than 1 MiB were refused: the writes failed."""
    limits = ChunkLimits()
    begin = MAX_CHUNK_BYTES - 512 * size  # the longest offsets
    near = [update(begin + number * 2 * size, bytes(size)) for number in range(257)]
    joined = join(near, lambda chain: True)[0].update
    row = pb.ChunkWrite(
        target=3,
        chain_version=2,
        kind=joined.kind,
        offset=begin,
        length=joined.length,
        checksum=5,
        pieces=joined.pieces,
    )
    row.chunk.inode, row.identity.client, row.identity.seq = 1 << 40, b"c" * 16, 1 << 40
    part = next(cut([row] * 2000, lambda row: row.length, limits.request_bytes, limits.request_rows))
    for method in methods.WRITE, methods.STAGE_AHEAD:
        body = method.request(writes=part).SerializeToString()
        assert method.request_bytes(body) < 16 << 20 and len(body) <= Limits().body_bytes
