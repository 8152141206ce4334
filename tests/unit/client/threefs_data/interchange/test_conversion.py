from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_data import Dataset, pack, token_format
from threefs_data.interchange import FORMATS, export_dataset, import_dataset, megatron
from threefs_data.interchange.exchange_directory import Directory
from threefs_data.prepare import prepare

from tests.harness.local_files import LocalFiles
from threefs.errors import AlreadyExists, Corrupt, InvalidArgument

LINES = b"".join(b"line %d%s\n" % (number, b"." * (number % 13)) for number in range(300))


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    (tmp_path / "a.txt").write_bytes(LINES)
    return LocalFiles(str(tmp_path))


def prepared(fs: LocalFiles, **options: Any) -> list[list[int]]:
    with ThreadPoolExecutor(1) as executor:
        prepare(fs, ["threefs:///a.txt"], "/ds", executor=executor, **options)
    return tokens_of(fs, "/ds")


def tokens_of(fs: LocalFiles, path: str) -> list[list[int]]:
    described = token_format.read(fs, path)
    with Dataset(fs, path) as dataset:
        return [described.tokens(sample).tolist() for sample in dataset.read(range(len(dataset)))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["megatron", "mds"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "uint32"},
        {"sequence_length": 50},
        {"sequence_length": 50, "document_starts": True, "dtype": "uint16"},
    ],
)
@pytest.mark.parametrize("where", ["threefs://", ""])
def test_tokens_there_and_back(fs: LocalFiles, kind: str, options: dict[str, Any], where: str) -> None:
    tokens = prepared(fs, **options)
    there = f"{where or fs.root}/other"
    done = export_dataset(fs, "/ds", there, kind, shard_bytes=1000)
    assert done.samples == len(tokens)
    source = f"{there}/{megatron.NAME}" if kind == "megatron" else there
    seen: list[int] = []
    assert import_dataset(fs, source, "/deep/back", kind, progress=seen.append).samples == len(tokens)
    assert tokens_of(fs, "/deep/back") == tokens and seen[-1] == len(tokens)
    assert token_format.read(fs, "/deep/back").dtype == options.get("dtype", "uint8")


@pytest.mark.parametrize("kind", ["webdataset", "mds"])
def test_any_samples_there_and_back(fs: LocalFiles, kind: str) -> None:
    samples = [bytes([number % 251]) * (number % 70) for number in range(3000)]
    pack(fs, samples, "/ds", shard_bytes=20_000)
    export_dataset(fs, "/ds", f"{fs.root}/other", kind, field="x", shard_bytes=10_000)
    import_dataset(fs, f"{fs.root}/other", "/back", kind, field="x")
    with Dataset(fs, "/back") as dataset:
        assert [bytes(sample) for sample in dataset.read(range(len(dataset)))] == samples
    with pytest.raises(AlreadyExists, match="/back is there already"):
        import_dataset(fs, f"{fs.root}/other", "/back", kind, field="x")
    with pytest.raises(AlreadyExists, match="other is there already"):
        export_dataset(fs, "/ds", f"{fs.root}/other", kind)


def test_what_is_not_possible_leaves_nothing_behind(fs: LocalFiles) -> None:
    pack(fs, [b"no tokens"], "/ds")
    with pytest.raises(InvalidArgument, match=r"/ds has no tokens\.json"):
        export_dataset(fs, "/ds", "threefs:///other", "megatron")
    for call in (export_dataset, import_dataset):
        with pytest.raises(InvalidArgument, match="no format 'csv'"):
            call(fs, "/ds", "/other", "csv")
    assert fs.listing("/") == ["a.txt", "ds"]
    assert FORMATS == ("megatron", "webdataset", "mds")


def test_tokens_with_a_sign_must_not_be_negative(fs: LocalFiles) -> None:
    directory = Directory(fs, fs.root)
    megatron.write(directory, [np.array([1, 2], np.int64), np.array([1 << 31], np.int64)], "int64")
    import_dataset(fs, f"{fs.root}/tokens", "/ds", "megatron")
    assert tokens_of(fs, "/ds") == [[1, 2], [1 << 31]]
    megatron.write(directory, [np.array([-1], np.int32)], "int32")
    with pytest.raises(Corrupt, match="tokens from -1 to -1"):
        import_dataset(fs, f"{fs.root}/tokens", "/other", "megatron")
    assert fs.listing("/") == ["a.txt", "ds", "tokens.bin", "tokens.idx"]
