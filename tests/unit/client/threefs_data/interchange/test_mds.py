import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.interchange import mds
from threefs_data.interchange.exchange_directory import Directory
from threefs_data.interchange.mds import Column

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, InvalidArgument, NotSupported, ThreefsError

SAMPLES = [bytes([number]) * (number * 37 % 600) for number in range(50)]


def directory_of(path: Path) -> Directory:
    return Directory(LocalFiles("/nonexistent"), str(path))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    return directory_of(tmp_path_factory.mktemp("mds"))


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 100))
def test_bytes_are_read_as_they_were_written(directory: Directory, samples: list[bytes], shard_bytes: int) -> None:
    assert mds.write(directory, samples, Column("x"), shard_bytes) == len(samples)
    assert list(mds.read(directory, "x")) == samples


@given(st.lists(st.integers(1, 300), max_size=9), st.sampled_from(["uint8", "uint16", "uint32"]), st.booleans())
def test_arrays_are_read_as_they_were_written(directory: Directory, lengths: list[int], dtype: str, same: bool) -> None:
    arrays = [np.arange(7 if same else length).astype(dtype) for length in lengths]
    column = Column("x", dtype, 7 if same else 0)
    mds.write(directory, arrays, column, 1000)
    assert list(mds.read(directory, "x")) == [array.tobytes() for array in arrays]
    if lengths:
        assert mds.read_column(directory, "x") == column


def test_the_layout_is_the_published_one(tmp_path: Path) -> None:
    mds.write(
        directory_of(tmp_path), [np.array([1, 2], np.uint16), np.array([3], np.uint16)], Column("t", "uint16"), 64
    )
    config = json.dumps(
        {
            "column_encodings": ["ndarray:uint16"],
            "column_names": ["t"],
            "column_sizes": [None],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": 64,
            "version": 2,
        }
    ).encode()
    first = 4 + 12 + len(config)
    samples = struct.pack("<IBBHH", 6, 1 << 2, 2, 1, 2), struct.pack("<IBBH", 4, 1 << 2, 1, 3)
    places = struct.pack("<4I", 2, first, first + 10, first + 18)
    assert (tmp_path / "shard.00000.mds").read_bytes() == places + config + b"".join(samples)
    index = json.loads((tmp_path / "index.json").read_bytes())
    assert index["version"] == 2 and index["shards"][0]["samples"] == 2
    assert index["shards"][0]["raw_data"] == {"basename": "shard.00000.mds", "bytes": first + 18, "hashes": {}}


def test_a_column_among_others(tmp_path: Path) -> None:
    """As Mosaic writes {"id": "int", "text": "str", "tokens": "ndarray:int32"}."""
    described = {"version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": 1 << 26}
    described |= {"column_names": ["id", "text", "tokens"], "column_sizes": [8, None, None]}
    described |= {"column_encodings": ["int", "str", "ndarray:int32"]}
    tokens = struct.pack("<BH3i", 1 << 2 | 1, 3, 7, 8, 9)
    sample = struct.pack("<IIq", 4, len(tokens), 5) + b"text" + tokens
    config = json.dumps(described, sort_keys=True).encode()
    head = struct.pack("<3I", 1, 12 + len(config), 12 + len(config) + len(sample))
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "shard.00000.mds").write_bytes(head + config + sample)
    row = {**described, "samples": 1, "raw_data": {"basename": "0/shard.00000.mds"}, "zip_data": None}
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [row]}))
    directory = directory_of(tmp_path)
    assert list(mds.read(directory, "text")) == [b"text"]
    assert list(mds.read(directory, "tokens")) == [struct.pack("<3i", 7, 8, 9)]
    with pytest.raises(NotSupported, match="stored as 'int'"):
        list(mds.read(directory, "id"))
    with pytest.raises(InvalidArgument, match="no column 'x'; it has id, text, tokens"):
        list(mds.read(directory, "x"))


def mosaic() -> Any:
    return pytest.importorskip("streaming", reason="mosaicml-streaming is not installed", exc_type=ImportError)


def test_mosaic_reads_them(tmp_path: Path) -> None:
    streaming: Any = pytest.importorskip(
        "streaming", reason="mosaicml-streaming is not installed", exc_type=ImportError
    )
    mds.write(directory_of(tmp_path), SAMPLES, Column("x"), 5000)
    dataset = streaming.LocalDataset(local=str(tmp_path))
    assert [dataset[number]["x"] for number in range(len(dataset))] == SAMPLES


def test_what_mosaic_wrote_is_read(tmp_path: Path) -> None:
    streaming: Any = pytest.importorskip(
        "streaming", reason="mosaicml-streaming is not installed", exc_type=ImportError
    )
    with streaming.MDSWriter(
        out=str(tmp_path), columns={"x": "bytes", "t": "ndarray:uint16"}, size_limit=5000
    ) as writer:
        for number, sample in enumerate(SAMPLES):
            writer.write({"x": sample, "t": np.arange(number + 1, dtype=np.uint16)})
    assert list(mds.read(directory_of(tmp_path), "x")) == SAMPLES
    assert list(mds.read(directory_of(tmp_path), "t")) == [
        np.arange(number + 1, dtype=np.uint16).tobytes() for number in range(50)
    ]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"version": 3}, NotSupported),
        ({"format": "csv"}, NotSupported),
        ({"compression": "zstd"}, NotSupported),
        ({"column_encodings": ["pkl"]}, NotSupported),
        ({"column_encodings": ["ndarray"]}, NotSupported),
        ({"column_encodings": ["ndarray:float32"]}, NotSupported),
        ({"column_encodings": [5]}, Corrupt),
        ({"column_sizes": [1 << 40]}, Corrupt),
        ({"column_sizes": [-1]}, Corrupt),
        ({"column_sizes": []}, Corrupt),
        ({"column_sizes": [3]}, Corrupt),
        ({"samples": -1}, Corrupt),
        ({"samples": 51}, Corrupt),
        ({"samples": "2"}, Corrupt),
        ({"raw_data": {"basename": "../index.json"}}, Corrupt),
        ({"raw_data": None}, Corrupt),
    ],
)
def test_hostile_indexes_are_refused(tmp_path: Path, change: dict[str, Any], kind: type[Exception]) -> None:
    mds.write(directory_of(tmp_path), SAMPLES, Column("x"), 1 << 20)
    index = json.loads((tmp_path / "index.json").read_bytes())
    index["shards"][0] |= change
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(kind):
        list(mds.read(directory_of(tmp_path), "x"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"shards": 5}', b'{"shards": [5]}', b"[" * 100_000, b"\xff"])
def test_other_indexes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index.json").write_bytes(content)
    with pytest.raises(Corrupt, match="not an index of MDS"):
        list(mds.read(directory_of(tmp_path), "x"))


@given(st.binary(max_size=40), st.integers(0, 400))
def test_damage_is_an_error_in_words(directory: Directory, damage: bytes, at: int) -> None:
    mds.write(directory, [np.arange(n + 1, dtype=np.uint16) for n in range(9)], Column("x", "uint16"), 1 << 20)
    with directory.open("shard.00000.mds") as file:
        content = file.read()
    with directory.create("shard.00000.mds") as file:
        file.write(content[:at] + damage + content[at + len(damage) :])
    try:
        assert sum(map(len, mds.read(directory, "x"))) < 5000
    except ThreefsError as error:
        assert "shard.00000.mds" in str(error)


def test_what_mds_cannot_hold_is_refused(directory: Directory) -> None:
    with pytest.raises(InvalidArgument, match="no empty arrays"):
        mds.write(directory, [np.array([], np.uint8)], Column("x", "uint8"), 100)
    with pytest.raises(InvalidArgument, match="shards of 0 bytes"):
        mds.write(directory, [], Column("x"), 0)


def test_shards_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for name, dtype in (("a", "int32"), ("b", "int64")):
        (tmp_path / name).mkdir()
        mds.write(directory_of(tmp_path / name), [np.arange(5, dtype=dtype)], Column("x", dtype, 5), 100)
    rows = []
    for name in "ab":
        (row,) = json.loads((tmp_path / name / "index.json").read_bytes())["shards"]
        row["raw_data"]["basename"] = f"{name}/{row['raw_data']['basename']}"
        rows.append(row)
    for shards, error, message in [
        (rows, NotSupported, "another type in b/shard.00000.mds"),
        (rows[:1] * 2, Corrupt, "names a/shard.00000.mds twice"),
        ([{**rows[0], "column_sizes": [19]}], Corrupt, "no whole numbers of 4"),
    ]:
        (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
        with pytest.raises(error, match=message):
            list(mds.read(directory_of(tmp_path), "x"))
