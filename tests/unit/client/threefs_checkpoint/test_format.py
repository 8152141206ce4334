import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import format
from threefs_checkpoint.format import ArrayInfo, Header

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

HEADER = Header(1 << 20, 3 << 20, 500, 12345)


def test_a_header_comes_back_and_every_flipped_bit_is_noticed() -> None:
    content = format.encode_header(HEADER)
    assert len(content) == format.HEADER_BYTES
    assert format.decode_header(content, "x") == HEADER
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, NotSupported)):
            format.decode_header(bytes(changed), "x")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (Header(1, 0, (64 << 20) + 1, 0), "limits"),
        (Header(0, 0, 1, 0), "limits"),
        (Header(1, 1 << 51, 1, 0), "limits"),
    ],
)
def test_headers_beyond_the_limits_are_refused(header: Header, message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        format.decode_header(format.encode_header(header), "x")


def test_other_files_and_versions_are_named() -> None:
    with pytest.raises(Corrupt, match="/a/b is not a checkpoint"):
        format.decode_header(b"PK" * 30, "/a/b")
    with pytest.raises(Corrupt, match="/a/b is not a checkpoint"):
        format.decode_header(b"", "/a/b")
    content = bytearray(format.encode_header(HEADER))
    content[8:12] = struct.pack("<I", 9)
    with pytest.raises(NotSupported, match="version 9"):
        format.decode_header(bytes(content), "/a/b")


def decoded(content: bytes, end: int = 1000) -> dict[str, ArrayInfo]:
    return format.decode_index(content, Header(64, end, len(content), crc32c(content)), "x")


def test_an_index_comes_back() -> None:
    arrays = [ArrayInfo("a", "float32", (2, 3), 64, 1), ArrayInfo("ü\n/", "bool", (), 128, 2)]
    assert decoded(format.encode_index(arrays)) == {array.name: array for array in arrays}
    assert decoded(format.encode_index([])) == {}


def test_a_damaged_index_is_refused() -> None:
    content = format.encode_index([])
    for header in (Header(64, 0, len(content), 0), Header(64, 0, len(content) + 1, crc32c(content))):
        with pytest.raises(Corrupt):
            format.decode_index(content, header, "x")


@pytest.mark.parametrize(
    "index",
    [
        [],
        {},
        {"arrays": 5},
        {"arrays": [5]},
        {"arrays": [["a", "float32", [1], 64]]},
        {"arrays": [["a", "object", [1], 64, 0]]},
        {"arrays": [["a", ["float32"], [1], 64, 0]]},
        {"arrays": [[5, "float32", [1], 64, 0]]},
        {"arrays": [["a", "float32", [-1], 64, 0]]},
        {"arrays": [["a", "float32", [1.5], 64, 0]]},
        {"arrays": [["a", "float32", [True], 64, 0]]},
        {"arrays": [["a", "float32", [1] * 33, 64, 0]]},
        {"arrays": [["a", "float32", 7, 64, 0]]},
        {"arrays": [["a", "float32", [1 << 40, 1 << 40], 64, 0]]},
        {"arrays": [["a", "float32", [235], 64, 0]]},
        {"arrays": [["a", "float32", [1], 64, 0], ["a", "float32", [1], 128, 0]]},
    ],
)
def test_an_index_that_makes_no_sense_is_refused(index: Any) -> None:
    with pytest.raises(Corrupt):
        decoded(json.dumps(index).encode())


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(Corrupt):
        decoded(content)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=20))
def test_arrays_do_not_overlap_and_large_ones_begin_a_chunk(sizes: dict[str, int]) -> None:
    offsets, end = format.lay_out(sizes, 256)
    taken = 256
    for name in offsets:
        assert offsets[name] >= taken
        assert offsets[name] % (256 if sizes[name] >= 256 else 64) == 0
        taken = offsets[name] + sizes[name]
    assert end >= taken and end % 256 == 0
    assert offsets.keys() == sizes.keys()


def test_types() -> None:
    assert format.dtype_name("a", np.dtype("f4")) == "float32"
    for dtype in (np.dtype(">f4"), np.dtype(object), np.dtype("U3"), np.dtype([("a", "f4")]), np.dtype("M8[s]")):
        with pytest.raises(InvalidArgument, match="array 'a'"):
            format.dtype_name("a", dtype)


@pytest.mark.parametrize("name", ["", "x" * 4097, 5, b"a"])
def test_names(name: object) -> None:
    with pytest.raises(InvalidArgument):
        format.check_name(name)
