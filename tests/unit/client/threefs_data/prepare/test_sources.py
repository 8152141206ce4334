import os
from pathlib import Path

import pytest
from threefs_data.prepare import sources
from threefs_data.prepare.sources import JSONL, PARQUET, TEXT

from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument, NotFound, NotSupported


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    (tmp_path / "cluster" / "in" / "deep").mkdir(parents=True)
    for name in ("in/b.jsonl", "in/deep/c.txt", "in/a.parquet", "in/_SUCCESS", "in/.hidden.txt"):
        (tmp_path / "cluster" / name).write_bytes(b"content")
    return LocalFiles(str(tmp_path / "cluster"))


def test_files_below_a_directory_come_in_the_order_of_their_paths(fs: LocalFiles) -> None:
    local = os.path.join(fs.root, "in")
    found = sources.find(fs, [local])
    assert [source.path for source in found] == [f"{local}/{name}" for name in ("a.parquet", "b.jsonl", "deep/c.txt")]
    assert [source.kind for source in found] == [PARQUET, JSONL, TEXT]
    remote = sources.find(fs, ["threefs:///in"])
    assert [source.path for source in remote] == [
        f"threefs:///in/{name}" for name in ("a.parquet", "b.jsonl", "deep/c.txt")
    ]
    assert [source.length for source in remote] == [7, 7, 7]


def test_inputs_keep_their_order(fs: LocalFiles) -> None:
    found = sources.find(fs, ["threefs:///in/deep/c.txt", os.path.join(fs.root, "in/b.jsonl")])
    assert [source.kind for source in found] == [TEXT, JSONL]
    assert sources.find(fs, ["threefs:///in/_SUCCESS"], TEXT)[0].kind == TEXT


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("/nowhere/a.txt", NotFound, "there is no file /nowhere/a.txt on this machine"),
        ("threefs:///nowhere", NotFound, "nowhere"),
        ("threefs://host:1/in", InvalidArgument, "names a cluster"),
        ("threefs:///in/_SUCCESS", InvalidArgument, "give --input-format text, jsonl or parquet"),
    ],
)
def test_other_names_are_refused(fs: LocalFiles, name: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        sources.find(fs, [name])


def test_compressed_files_and_empty_directories(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="no file to read"):
        sources.find(fs, [str(tmp_path / "empty")])
    (tmp_path / "a.jsonl.gz").touch()
    with pytest.raises(NotSupported, match="decompress it"):
        sources.find(fs, [str(tmp_path / "a.jsonl.gz")])


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_a_file_that_changes_is_noticed(fs: LocalFiles, where: str) -> None:
    path = os.path.join(fs.root, "in/b.jsonl")
    (source,) = sources.find(fs, [path if where == "local" else "threefs:///in/b.jsonl"])
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(InvalidArgument, match=r"b\.jsonl has changed"):
        sources.open_source(fs, source)
