from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.prepare.spill import TABLES_BYTES, Spill, SpilledSamples, SpillWriter, read_counts
from threefs_data.token_format import TokenFormat

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt

Documents = list[list[int]]
SPILLS = st.lists(st.lists(st.lists(st.integers(0, 255), max_size=12), max_size=6), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def fs(tmp_path_factory: pytest.TempPathFactory) -> LocalFiles:
    return LocalFiles(str(tmp_path_factory.mktemp("spills")))


def spilled(
    fs: LocalFiles, contents: list[Documents], token_format: TokenFormat, tables_bytes: int = TABLES_BYTES
) -> SpilledSamples:
    paths = [f"/{number}" for number in range(len(contents))]
    for path, documents in zip(paths, contents, strict=True):
        writer = SpillWriter(fs, path, token_format)
        for document in documents:
            writer.add(np.array(document, np.int64))
        writer.finish()
    spills = [spill for spill in read_counts(fs, paths) if spill is not None]
    assert [spill.documents for spill in spills] == [len(documents) for documents in contents]
    return SpilledSamples(fs, spills, token_format, tables_bytes=tables_bytes)


@given(
    SPILLS,
    st.sampled_from(["uint8", "uint16", "uint32"]),
    st.sampled_from([None, 7]),
    st.sampled_from([0, 1000]),
    st.randoms(),
)
def test_documents_are_found_by_their_numbers(
    fs: LocalFiles, contents: list[Documents], dtype: str, end: int | None, tables_bytes: int, random: Random
) -> None:
    token_format = TokenFormat(dtype, end_of_document=end)
    samples = spilled(fs, contents, token_format, tables_bytes)
    expected = [document + ([] if end is None else [end]) for documents in contents for document in documents]
    assert len(samples) == len(expected)
    numbers = list(range(len(expected))) * 2
    random.shuffle(numbers)
    found = [token_format.tokens(sample).tolist() for sample in samples.read(np.array(numbers, np.int64))]
    assert found == [expected[number] for number in numbers]


@given(SPILLS, st.integers(1, 20), st.sampled_from([None, 7]))
def test_sequences_go_over_the_ends_of_documents_and_files(
    fs: LocalFiles, contents: list[Documents], length: int, end: int | None
) -> None:
    token_format = TokenFormat("uint16", length, True, end)
    samples = spilled(fs, contents, token_format)
    tokens: list[int] = []
    starts: set[int] = set()
    for document in (document for documents in contents for document in documents):
        starts.add(len(tokens))
        tokens += document + ([] if end is None else [end])
    assert len(samples) == len(tokens) // length
    numbers = np.arange(len(samples))[::-1]
    for number, sample in zip(numbers.tolist(), samples.read(numbers), strict=True):
        first = number * length
        assert len(sample) == token_format.sample_bytes
        assert token_format.tokens(sample).tolist() == tokens[first : first + length]
        found = {first + at for at in token_format.starts(sample).nonzero()[0].tolist()}
        assert found == {start for start in starts if first <= start < first + length}


def test_counts_of_files_that_exist(fs: LocalFiles) -> None:
    spilled(fs, [[[1, 2], [3]]], TokenFormat("uint8"))
    assert read_counts(fs, ["/0", "/nowhere"]) == [Spill("/0", 2, 3), None]
    assert read_counts(fs, []) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "flip"])
def test_a_damaged_file_is_noticed(tmp_path: Path, damage: str) -> None:
    fs = LocalFiles(str(tmp_path))
    spilled(fs, [[[1, 2], [3]]], TokenFormat("uint8"))
    content = bytearray((tmp_path / "0").read_bytes())
    content[-10] ^= 1
    (tmp_path / "0").write_bytes({"cut": content[:-1], "empty": bytearray(), "flip": content}[damage])
    with pytest.raises(Corrupt, match="/0 is not a spill file"):
        read_counts(fs, ["/0"])


@pytest.mark.parametrize("tables_bytes", [0, TABLES_BYTES])
def test_a_table_that_leads_nowhere_is_noticed(tmp_path: Path, tables_bytes: int) -> None:
    fs = LocalFiles(str(tmp_path))
    samples = spilled(fs, [[[1, 2], [3]]], TokenFormat("uint8"), tables_bytes)
    content = bytearray((tmp_path / "0").read_bytes())
    content[3] = 200
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(Corrupt, match="a document from 0 to 200 has no place in 3 tokens"):
        list(samples.read(np.array([0])))
