import struct

import pytest
from threefs_data import format
from threefs_data.format import Shard

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

SHARDS = [Shard(3, 116, 77), Shard(0, 16, 78)]


def with_header(content: bytes, offset: int, value: bytes) -> bytes:
    """The index with a changed header under a right checksum."""
    changed = bytearray(content)
    changed[offset : offset + len(value)] = value
    changed[28:32] = struct.pack("<I", crc32c(bytes(changed[:28])))
    return bytes(changed)


def test_an_index_comes_back() -> None:
    assert format.decode_index(format.encode_index(SHARDS), "x") == SHARDS
    assert format.decode_index(format.encode_index([]), "x") == []


def test_every_flipped_bit_and_every_cut_of_an_index_is_noticed() -> None:
    content = format.encode_index(SHARDS)
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, NotSupported)):
            format.decode_index(bytes(changed), "x")
    for length in range(len(content)):
        with pytest.raises(Corrupt):
            format.decode_index(content[:length], "x")
    with pytest.raises(Corrupt):
        format.decode_index(content + b"\0", "x")


@pytest.mark.parametrize(
    ("offset", "value", "error", "message"),
    [
        (0, b"PNG", Corrupt, "/ds/index is not the index of a dataset"),
        (8, struct.pack("<I", 2), NotSupported, "format version 2"),
        (12, struct.pack("<I", 100_001), Corrupt, "100001 shards"),
        (16, struct.pack("<Q", 4), Corrupt, "promises 4 samples"),
    ],
)
def test_the_error_says_what_is_wrong(offset: int, value: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        format.decode_index(with_header(format.encode_index(SHARDS), offset, value), "/ds/index")


@pytest.mark.parametrize("shard", [Shard(1 << 25, 16, 0), Shard(1, 15, 0), Shard(1, (1 << 40) + 1, 0)])
def test_shards_beyond_the_limits_are_refused(shard: Shard) -> None:
    with pytest.raises(Corrupt):
        format.decode_index(format.encode_index([shard]), "x")


def test_too_many_shards_cannot_be_written() -> None:
    with pytest.raises(InvalidArgument):
        format.encode_index([Shard(0, 16, 0)] * 100_001)


def table_of(starts: list[int]) -> tuple[bytes, Shard]:
    content = format.encode_table(starts, list(range(len(starts) - 1)))
    return content, Shard(len(starts) - 1, starts[-1], crc32c(content))


def test_a_table_comes_back() -> None:
    content, shard = table_of([16, 20, 20, 116])
    table = format.decode_table(content, shard, "x")
    assert table.starts.tolist() == [16, 20, 20, 116]
    assert table.crcs.tolist() == [0, 1, 2]
    assert shard.table_bytes == len(content)


@pytest.mark.parametrize("starts", [[15, 20], [16, 21, 20], [16, 17 + (1 << 30)]])
def test_tables_that_make_no_sense_are_refused(starts: list[int]) -> None:
    with pytest.raises(Corrupt):
        format.decode_table(*table_of(starts), "x")


def test_damaged_tables_are_refused() -> None:
    content, shard = table_of([16, 20, 116])
    with pytest.raises(Corrupt, match="checksum"):
        format.decode_table(content[:-1] + b"\x80", shard, "x")
    with pytest.raises(Corrupt, match="bytes"):
        format.decode_table(content[:-1], shard, "x")


def test_a_shard_knows_its_number() -> None:
    header = format.shard_header(3)
    format.check_shard_header(header, 3, "x")
    with pytest.raises(Corrupt, match="shard 3, not 4"):
        format.check_shard_header(header, 4, "x")
    with pytest.raises(Corrupt, match="not a shard"):
        format.check_shard_header(b"\0" * 16, 3, "x")
