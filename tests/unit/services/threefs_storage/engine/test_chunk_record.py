import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.engine.chunk_record import Block, Record, Version, corrected, decode, encode
from threefs_storage.engine.exactly_once import MAX_ENTRIES, NOTHING_FORGOTTEN, Forgotten, OnceEntry
from threefs_storage.engine.overlay import MAX_EXTENTS, BlobKey, Overlay

from threefs.checksums import crc32c
from threefs.errors import Corrupt
from threefs.ids import ChunkId, WriteIdentity

FIRST_FORMAT = (
    "010701030000000000000002000000881300004d000000020c1004000000000102030405060708090a0b0c0d0e0f01000000"
    "02000000000000000001020304050607030000000000000002000000881300004d000000020c100400000000010203040506"
    "0708090a0b0c0d0e0f0100000002000000000000000001020304050607000102030405060708090a0b0c0d0e0f0100000001"
    "000000000000000200000000000000640000000500000001000102030405060708090a0b0c0d0e0f02000000010000000000"
    "000002000000000000006400000005000000be6d1e7d"
)
SECOND_FORMAT = (
    "02070100030000000000000002000000881300004d000000020c1004000000000102030405060708090a0b0c0d0e0f010000"
    "000200000000000000000000000001020304050607030000000000000002000000881300004d000000020c10040000000001"
    "02030405060708090a0b0c0d0e0f010000000200000000000000000000000001020304050607000102030405060708090a0b"
    "0c0d0e0f01000000010000000000000002000000000000006400000005000000000000000100000102030405060708090a0b"
    "0c0d0e0f0200000001000000000000000200000000000000640000000500000000000000000000000000000000000000017a"
    "dabd"
)
THIRD_FORMAT = (
    "03070100030000000000000002000000881300004d0000000a0c1004000000000102030405060708090a0b0c0d0e0f010000"
    "000200000000000000000000000001020304050607a00f000001000a00000014000000010000000000000014000000030000"
    "000000000002000000881300004d0000000a0c1004000000000102030405060708090a0b0c0d0e0f01000000020000000000"
    "0000000000000001020304050607a00f000001000a0000001400000001000000000000001400000000010203040506070809"
    "0a0b0c0d0e0f0100000001000000000000000200000000000000640000000500000000000000010000010203040506070809"
    "0a0b0c0d0e0f0200000001000000000000000200000000000000640000000500000000000000000000000000000000000000"
    "8d45132d"
)
CHUNK = ChunkId(0x0102030405060708, 9)

u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
clients = st.binary(min_size=16, max_size=16)
entries = st.lists(st.builds(OnceEntry, clients, u32, u64, u64, u32, u32, u32), max_size=MAX_ENTRIES).map(tuple)


@st.composite
def overlays(draw: st.DrawFn, length: int, has_block: bool) -> Overlay:
    overlay = Overlay(CHUNK, draw(st.integers(0, length)) if has_block else 0)
    for number in range(draw(st.integers(0, 5))):
        offset = draw(st.integers(0, length))
        overlay = overlay.written(offset, draw(st.integers(0, length - offset)), number)
    return overlay


@st.composite
def versions(draw: st.DrawFn) -> Version:
    length = draw(st.integers(0, 40_000))
    blocks = -(-length // 4096)
    block = draw(st.none() | st.builds(Block, st.integers(16, 26), u32)) if length else None
    return Version(
        version=draw(u64),
        chain_version=draw(u32),
        length=length,
        checksum=draw(u32),
        block=block,
        checksum_block_bytes=4096,
        block_checksums=draw(st.binary(min_size=4 * blocks, max_size=4 * blocks)),
        removed=draw(st.booleans()),
        identity=draw(st.none() | st.builds(WriteIdentity, clients, u32, u64)),
        lost=draw(st.booleans()),
        stamp=draw(u32),
        overlay=draw(st.none() | overlays(length, block is not None)),
    )


records = st.builds(
    Record,
    st.none() | versions(),
    st.none() | versions(),
    entries,
    st.none() | entries,
    st.just(NOTHING_FORGOTTEN) | st.builds(Forgotten, st.integers(1, 1 << 60), u32),
)


@given(records)
def test_a_record_is_decoded_as_it_was_encoded(record: Record) -> None:
    assert decode(CHUNK, encode(CHUNK, record)) == record


def sample() -> Record:
    client = bytes(range(16))
    version = Version(3, 2, 5000, 77, Block(16, 4), 4096, bytes(range(8)), False, WriteIdentity(client, 1, 2))
    return Record(version, version, (OnceEntry(client, 1, 1, 2, 100, 5),), (OnceEntry(client, 2, 1, 2, 100, 5),))


def test_every_flipped_bit_is_detected() -> None:
    data = encode(CHUNK, sample())
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode(CHUNK, bytes(damaged))


def test_every_flipped_bit_is_corrected_and_two_are_not() -> None:
    data = encode(CHUNK, sample())
    for bit in range(0, len(data) * 8, 7):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert corrected(CHUNK, bytes(damaged)) == sample()
        damaged[(bit // 8 + 5) % len(data)] ^= 1
        assert corrected(CHUNK, bytes(damaged)) is None


def test_a_record_of_another_chunk_is_detected() -> None:
    with pytest.raises(Corrupt):
        decode(ChunkId(CHUNK.inode, CHUNK.number + 1), encode(CHUNK, sample()))


def test_every_cut_is_detected() -> None:
    data = encode(CHUNK, sample())
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            decode(CHUNK, data[:length])


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(CHUNK, data)


@given(st.binary(max_size=300))
def test_a_body_that_makes_no_sense_is_refused_or_decoded_but_never_crashes(body: bytes) -> None:
    body = b"\x01" + body
    try:
        decode(CHUNK, body + crc32c(CHUNK.key() + body).to_bytes(4, "little"))
    except Corrupt:
        return


def write(record: Record, version: int, client: int, seq: int, shipped: tuple[OnceEntry, ...] | None = None) -> Record:
    identity = WriteIdentity(bytes([client]) * 16, 1, seq)
    pending = Version(version, 1, 0, 0, None, 4096, b"", False, identity)
    return Record(record.committed, pending, record.entries, shipped).after_commit(5)


def test_commit_makes_the_pending_version_the_committed_one_and_remembers_its_write() -> None:
    record = write(Record(), 1, client=7, seq=3)
    assert record.pending is None
    assert record.committed is not None
    assert (record.committed.version, record.committed.chain_version) == (1, 5)
    assert record.entry(bytes([7]) * 16, 1) == OnceEntry(bytes([7]) * 16, 1, 3, 1, 0, 0)
    assert record.entry(bytes([7]) * 16, 2) is None
    assert record.entry(bytes([8]) * 16, 1) is None


def test_a_record_of_the_first_format_is_read() -> None:
    """As version 0.1 wrote it; its writes are from the beginning of time."""
    data = bytes.fromhex(FIRST_FORMAT)
    record = decode(CHUNK, data)
    assert record == sample()
    assert decode(CHUNK, encode(CHUNK, record)) == record


def test_a_record_of_the_second_format_is_read() -> None:
    """As versions 0.1 and 0.2 wrote it: it has no overlay."""
    data = bytes.fromhex(SECOND_FORMAT)
    record = decode(CHUNK, data)
    assert record == sample()
    assert decode(CHUNK, encode(CHUNK, record)) == record


def test_a_record_of_the_third_format_is_read() -> None:
    """It has overlays, and no deltas."""
    data = bytes.fromhex(THIRD_FORMAT)
    record = decode(CHUNK, data)
    assert record == overlaid(sample())
    assert decode(CHUNK, encode(CHUNK, record)) == record


def overlaid(record: Record) -> Record:
    overlay = Overlay(CHUNK, 4000).written(10, 20, 1)
    committed, pending = (v and dataclasses.replace(v, overlay=overlay) for v in (record.committed, record.pending))
    return dataclasses.replace(record, committed=committed, pending=pending)


@given(st.integers(0, 255), st.binary(min_size=4, max_size=4), st.integers(1, MAX_EXTENTS // 2))
def test_a_small_change_costs_a_small_part_of_the_record(place: int, crc: bytes, extents: int) -> None:
    """Whatever the chunk has: 256 checksums, and hundreds of extents."""
    overlay = Overlay(CHUNK, 1 << 20)
    for number in range(extents):
        overlay = overlay.written(4096 * number, 4096, number + 1)
    committed = Version(7, 1, 1 << 22, 9, Block(22, 1), 1 << 14, bytes(range(256)) * 4, overlay=overlay)
    crcs = committed.block_checksums[: place * 4] + crc + committed.block_checksums[place * 4 + 4 :]
    changed = overlay.written(place << 14, 4096, 9999)
    pending = dataclasses.replace(committed, version=8, block_checksums=crcs, overlay=changed)
    alone, both = encode(CHUNK, Record(committed)), encode(CHUNK, Record(committed, pending))
    assert len(both) - len(alone) < 200
    assert decode(CHUNK, both) == Record(committed, pending)


def test_a_delta_without_a_base_is_damage() -> None:
    record = sample()
    body = bytearray(encode(CHUNK, Record(record.committed))[:-4])
    body[1] = 2  # what is there is said to be the pending version
    flags = 4 + 8 + 3 * 4
    body[flags] |= 16
    with pytest.raises(Corrupt):
        decode(CHUNK, bytes(body) + crc32c(CHUNK.key() + body).to_bytes(4, "little"))


def test_the_extents_of_a_record_are_bounded() -> None:
    """More than the bound are damage, however well they fit."""
    base = Version(1, 1, 1 << 20, 0, None, 4096, bytes(1024))
    overlay = Overlay(CHUNK, 0)
    for number in range(MAX_EXTENTS):
        overlay = overlay.written(2 * number, 1, number)
    body = bytearray(encode(CHUNK, Record(dataclasses.replace(base, overlay=overlay)))[:-4])
    assert decode(CHUNK, bytes(body) + crc32c(CHUNK.key() + body).to_bytes(4, "little")).committed is not None
    at = len(body) - 20 * MAX_EXTENTS - 2
    body[at : at + 2] = (MAX_EXTENTS + 1).to_bytes(2, "little")
    body += bytes(20)
    with pytest.raises(Corrupt, match="1025 extents"):
        decode(CHUNK, bytes(body) + crc32c(CHUNK.key() + body).to_bytes(4, "little"))


def test_blobs_and_blocks_that_a_record_names() -> None:
    block, other = Block(16, 4), Block(17, 1)
    first = Version(3, 2, 5000, 77, block, 4096, bytes(8), overlay=Overlay(CHUNK, 5000).written(0, 10, 4))
    second = dataclasses.replace(first, version=4, overlay=Overlay(CHUNK, 5000).written(0, 10, 4).written(5, 9, 6))
    record = Record(first, second)
    assert record.blobs == {4: 10, 6: 9}
    assert record.free_blob(CHUNK).number == Record().free_blob(CHUNK).number == 1
    assert record.blocks == {block}
    assert record.with_copy(first, dataclasses.replace(first, block=other)).blocks == {block, other}


def test_a_chunk_that_is_changed_for_years_has_numbers_for_its_blobs() -> None:
    """Each change took the number behind that of the one before, until a record had no room for it."""
    numbers = [(1 << 32) - 1, *range(1, 6)]
    overlay = Overlay(CHUNK, 0)
    for place, number in enumerate(numbers):
        overlay = overlay.written(place, 1, number)
    blob = Record(Version(3, 2, 6, 77, None, 4096, bytes(4), overlay=overlay)).free_blob(CHUNK)
    assert blob.number == 6 and BlobKey.number_of(blob.encoded()) == 6


def test_shipped_entries_take_the_place_of_those_here() -> None:
    shipped = (OnceEntry(bytes([9]) * 16, 1, 1, 4, 0, 0),)
    record = write(write(Record(), 1, client=1, seq=1), 5, client=2, seq=1, shipped=shipped)
    assert [entry.client[0] for entry in record.entries] == [9, 2]
