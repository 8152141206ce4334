import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.interchange import megatron
from threefs_data.interchange.exchange_directory import Directory

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, InvalidArgument, NotSupported, ThreefsError

DTYPES = ("uint8", "uint16", "uint32")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    return Directory(LocalFiles("/nonexistent"), str(tmp_path_factory.mktemp("megatron")))


def written(directory: Directory, samples: list[list[int]], dtype: str) -> tuple[bytes, bytes]:
    assert megatron.write(directory, (np.array(sample, dtype) for sample in samples), dtype) == len(samples)
    with directory.open("tokens.bin") as data, directory.open("tokens.idx") as index:
        return data.read(), index.read()


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=9), st.sampled_from(DTYPES))
def test_sequences_are_read_as_they_were_written(directory: Directory, samples: list[list[int]], dtype: str) -> None:
    written(directory, samples, dtype)
    assert [sequence.tolist() for sequence in megatron.read(directory, "tokens")] == samples


def test_the_layout_is_the_published_one(directory: Directory) -> None:
    data, index = written(directory, [[1, 2, 3], [], [65535]], "uint16")
    assert data == struct.pack("<4H", 1, 2, 3, 65535)
    expected = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 3, 4)
    expected += struct.pack("<3i", 3, 0, 1) + struct.pack("<3q", 0, 6, 6) + struct.pack("<4q", 0, 1, 2, 3)
    assert index == expected


def test_tokens_of_32_bits_become_signed_ones(directory: Directory) -> None:
    assert written(directory, [[7]], "uint32")[1][17] == 4
    with pytest.raises(InvalidArgument, match="token 2147483648 of sample 1"):
        written(directory, [[7], [1 << 31]], "uint32")


@pytest.mark.parametrize(
    ("offset", "content", "kind"),
    [
        (0, b"X", Corrupt),
        (9, b"\x02", NotSupported),
        (17, b"\x07", NotSupported),  # float32
        (18, b"\xff" * 8, Corrupt),  # sequences
        (18, b"\xff" * 7, Corrupt),
        (34, b"\xff\xff\xff\xff", Corrupt),  # a length
        (34, b"\xff\xff\xff\x7f", Corrupt),
        (42, b"\xff" * 8, Corrupt),  # a place
        (42, b"\xff" * 7, Corrupt),
    ],
)
def test_hostile_indexes_are_refused(directory: Directory, offset: int, content: bytes, kind: type[Exception]) -> None:
    _, index = written(directory, [[1], [2]], "uint16")
    with directory.create("tokens.idx") as file:
        file.write(index[:offset] + content + index[offset + len(content) :])
    with pytest.raises(kind):
        list(megatron.read(directory, "tokens"))


@given(st.binary(max_size=100))
def test_any_bytes_are_refused_in_words(directory: Directory, content: bytes) -> None:
    written(directory, [[1], [2]], "uint16")
    with directory.create("tokens.idx") as file:
        file.write(b"MMIDIDX\0\0" + content)
    with suppress(ThreefsError):
        assert sum(len(sequence) for sequence in megatron.read(directory, "tokens")) < 1000


def test_more_than_a_page(directory: Directory) -> None:
    samples = [[number % 250] * (number % 3) for number in range(70_000)]
    written(directory, samples, "uint8")
    assert [sequence.tolist() for sequence in megatron.read(directory, "tokens")] == samples


def test_a_directory_without_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(megatron.read(Directory(LocalFiles("/nonexistent"), str(tmp_path)), "tokens"))


def test_sequences_in_another_order_are_read_and_those_that_overlap_refused(directory: Directory) -> None:
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 0)
    with directory.create("tokens.bin") as data:
        data.write(struct.pack("<3H", 7, 8, 9))
    for lengths, places, expected in [((1, 2), (4, 0), [[9], [7, 8]]), ((3, 1), (0, 0), None)]:
        with directory.create("tokens.idx") as index:
            index.write(header + struct.pack("<2i2q", *lengths, *places))
        if expected is None:
            with pytest.raises(Corrupt, match="overlap: 8 bytes of 6"):
                list(megatron.read(directory, "tokens"))
        else:
            assert [sequence.tolist() for sequence in megatron.read(directory, "tokens")] == expected
