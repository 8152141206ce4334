import struct

import pytest
from threefs_data import format
from threefs_data.format import Shard

from tests.harness import dataset_version_1
from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

SHARDS = [Shard(3, 4196, 0, True, 77), Shard(5, 4096 + 5 * 20, 20, False, 78)]


def with_header(content: bytes, offset: int, value: bytes) -> bytes:
    """The index with a changed header under a right checksum."""
    changed = bytearray(content)
    changed[offset : offset + len(value)] = value
    changed[28:32] = struct.pack("<I", crc32c(bytes(changed[:28])))
    return bytes(changed)


def test_an_index_comes_back() -> None:
    index = format.decode_index(format.encode_index(SHARDS), "x")
    assert (index.version, index.shards, index.samples) == (2, tuple(SHARDS), 8)
    assert format.decode_index(format.encode_index([]), "x").shards == ()


def test_an_index_of_version_1_is_read() -> None:
    index = format.decode_index(dataset_version_1.encode_index([(3, 116, 77), (0, 16, 78)]), "x")
    assert index.version == 1
    assert index.shards == (Shard(3, 116, 0, True, 77), Shard(0, 16, 0, True, 78))


def test_other_samples_have_another_fingerprint() -> None:
    others = [SHARDS, SHARDS[::-1], SHARDS[:1], [SHARDS[0], Shard(5, 4096 + 5 * 20, 20, False, 79)]]
    prints = [format.decode_index(format.encode_index(shards), "x").fingerprint for shards in others]
    assert len(set(prints)) == 4
    assert prints[0] == format.decode_index(format.encode_index(SHARDS), "elsewhere").fingerprint


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
        (8, struct.pack("<I", 3), NotSupported, "format version 3"),
        (12, struct.pack("<I", 100_001), Corrupt, "100001 shards"),
        (16, struct.pack("<Q", 4), Corrupt, "promises 4 samples"),
    ],
)
def test_the_error_says_what_is_wrong(offset: int, value: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        format.decode_index(with_header(format.encode_index(SHARDS), offset, value), "/ds/index")


@pytest.mark.parametrize(
    "shard",
    [
        Shard(1 << 25, 4096, 0, True, 0),
        Shard(1, 4095, 0, True, 0),
        Shard(1, (1 << 40) + 1, 0, True, 0),
        Shard(2, 4096 + 2 * 20 + 1, 20, False, 0),
        Shard(1, 4096 + (1 << 30) + 1, (1 << 30) + 1, False, 0),
    ],
)
def test_shards_that_are_not_possible_are_refused(shard: Shard) -> None:
    with pytest.raises(Corrupt):
        format.decode_index(format.encode_index([shard]), "x")


def test_too_many_shards_cannot_be_written() -> None:
    with pytest.raises(InvalidArgument):
        format.encode_index([Shard(0, 4096, 0, False, 0)] * 100_001)


def test_a_shard_knows_its_number_and_version() -> None:
    header = format.shard_header(3)
    assert len(header) == 4096 and len(format.shard_header(3, 1)) == 16
    format.check_shard_header(header, 3, 2, "x")
    with pytest.raises(Corrupt, match="shard 3, not 4"):
        format.check_shard_header(header, 4, 2, "x")
    with pytest.raises(Corrupt, match="version 2, and the index of its dataset 1"):
        format.check_shard_header(header, 3, 1, "x")
    with pytest.raises(Corrupt, match="not a shard"):
        format.check_shard_header(b"\0" * 16, 3, 2, "x")
