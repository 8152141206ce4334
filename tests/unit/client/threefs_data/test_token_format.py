import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data import token_format
from threefs_data.token_format import TokenFormat, smallest_dtype

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, InvalidArgument, NotFound, NotSupported

SEQUENCES = TokenFormat("uint16", sequence_length=11, document_starts=True, end_of_document=256, tokenizer="bytes")


def test_a_format_is_read_as_it_was_written(tmp_path: Path) -> None:
    fs = LocalFiles(str(tmp_path))
    (tmp_path / "tokens.json").write_bytes(SEQUENCES.encode())
    assert token_format.read(fs, "/") == SEQUENCES
    with pytest.raises(NotFound):
        token_format.read(fs, "/other")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"dtype": 3},
        {"sequence_length": -1},
        {"sequence_length": 1 << 40},
        {"sequence_length": True},
        {"end_of_document": 70000},
        {"end_of_document": "0"},
        {"document_starts": 1},
        {"more": 1},
    ],
)
def test_other_contents_are_refused(change: dict[str, object]) -> None:
    content = json.dumps({**json.loads(SEQUENCES.encode()), **change}).encode()
    with pytest.raises(Corrupt, match="/ds does not describe tokens"):
        TokenFormat.decode(content, "/ds")


def test_a_newer_version_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="version 2"):
        TokenFormat.decode(SEQUENCES.encode().replace(b'"version": 1', b'"version": 2'), "/ds")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(content: bytes) -> None:
    with pytest.raises((Corrupt, NotSupported)):
        TokenFormat.decode(content, "/ds")


def test_starts_are_one_bit_for_each_token() -> None:
    assert SEQUENCES.sample_bytes == 22 + 2
    sample = np.arange(11, dtype="<u2").tobytes() + bytes([0b00000101, 0b00000100])
    assert SEQUENCES.tokens(sample).tolist() == list(range(11))
    assert SEQUENCES.starts(sample).nonzero()[0].tolist() == [0, 2, 10]
    with pytest.raises(InvalidArgument, match="without document starts"):
        TokenFormat("uint8", sequence_length=11).starts(sample)


def test_only_sequences_have_starts() -> None:
    with pytest.raises(InvalidArgument, match="give a sequence length"):
        TokenFormat("uint8", document_starts=True)


@pytest.mark.parametrize(
    ("ids", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32")]
)
def test_the_smallest_type_is_taken(ids: int, dtype: str) -> None:
    assert smallest_dtype(ids) == dtype


def test_no_type_holds_more() -> None:
    with pytest.raises(InvalidArgument):
        smallest_dtype((1 << 32) + 1)


@pytest.mark.parametrize("size", [0, 22, 23, 25, 48])
def test_samples_of_another_dataset_are_named(size: int) -> None:
    for read in (SEQUENCES.tokens, SEQUENCES.starts):
        with pytest.raises(Corrupt, match=f"a sample of {size} bytes does not have 11 tokens of uint16"):
            read(bytes(size))
    if size % 2:
        with pytest.raises(Corrupt, match="whole tokens of uint16"):
            TokenFormat("uint16").tokens(bytes(size))
