import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import single_file
from threefs_checkpoint.single_file import ArrayInfo, Header

from tests.harness import single_file_checkpoint as written
from tests.harness.checkpoint_files import CheckpointFiles
from threefs.checksums import crc32c
from threefs.errors import Corrupt, NotFound, NotSupported

HEADER = Header(1 << 20, 3 << 20, 500, 12345)


def test_a_header_comes_back_and_every_flipped_bit_is_noticed() -> None:
    content = written.encode_header(HEADER)
    assert len(content) == single_file.HEADER_BYTES
    assert single_file.decode_header(content, "x") == HEADER
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, NotSupported)):
            single_file.decode_header(bytes(changed), "x")


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
        single_file.decode_header(written.encode_header(header), "x")


def test_other_files_and_versions_are_named() -> None:
    with pytest.raises(Corrupt, match="/a/b is not a checkpoint"):
        single_file.decode_header(b"PK" * 30, "/a/b")
    with pytest.raises(Corrupt, match="/a/b is not a checkpoint"):
        single_file.decode_header(b"", "/a/b")
    content = bytearray(written.encode_header(HEADER))
    content[8:12] = struct.pack("<I", 9)
    with pytest.raises(NotSupported, match="version 9"):
        single_file.decode_header(bytes(content), "/a/b")


def decoded(content: bytes, end: int = 1000) -> dict[str, ArrayInfo]:
    return single_file.decode_index(content, Header(64, end, len(content), crc32c(content)), "x")


def test_an_index_comes_back() -> None:
    arrays = [ArrayInfo("a", "float32", (2, 3), 64, 1), ArrayInfo("ü\n/", "bool", (), 128, 2)]
    assert decoded(written.encode_index(arrays)) == {array.name: array for array in arrays}
    assert decoded(written.encode_index([])) == {}


def test_a_damaged_index_is_refused() -> None:
    content = written.encode_index([])
    for header in (Header(64, 0, len(content), 0), Header(64, 0, len(content) + 1, crc32c(content))):
        with pytest.raises(Corrupt):
            single_file.decode_index(content, header, "x")


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


def test_a_file_of_the_first_format_is_read(tmp_path: Path) -> None:
    fs = CheckpointFiles(str(tmp_path))
    arrays = {"w": np.arange(1000, dtype=np.float32), "step": np.array(7), "empty": np.zeros((0, 2), bool)}
    content = written.encode(arrays, 256)
    fs.write_file("/old", content)
    assert single_file.read_index(fs, "/old")["w"].shape == (1000,)
    found = single_file.load(fs, "/old")
    assert all((found[name] == arrays[name]).all() and found[name].shape == arrays[name].shape for name in arrays)
    assert list(single_file.load(fs, "/old", ["step"])) == ["step"]
    with pytest.raises(NotFound, match="no tensor 'x'"):
        single_file.load(fs, "/old", ["x"])
    for offset in (0, 20, 256, 4200, len(content) - 1):
        changed = bytearray(content)
        changed[offset] ^= 4
        fs.write_file("/old", changed)
        with pytest.raises(Corrupt):
            single_file.load(fs, "/old")
