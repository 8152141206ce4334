# mypy: disable-error-code="import-not-found,import-untyped"
"""The behaviours that pyarrow's own tests ask of a file system and its handler, on a real cluster."""

import itertools
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.harness.cluster import LocalCluster

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (make ml-venv)")
fs_module = pytest.importorskip("pyarrow.fs")
from pyarrow.fs import FileSelector, FileType, PyFileSystem  # noqa: E402
from threefs_fsspec import ThreefsFileSystem  # noqa: E402
from threefs_fsspec.arrow import ThreefsHandler, connect  # noqa: E402

_NUMBERS = itertools.count()
CONTENT = bytes(range(256)) * 5000


@pytest.fixture(scope="module")
def arrow(cluster: LocalCluster) -> Iterator[PyFileSystem]:
    made = connect(cluster.address, timeout_s=30.0, attempt_timeout_s=9.0)
    yield made
    made.handler.fs.client.close()
    ThreefsFileSystem.clear_instance_cache()


@pytest.fixture
def place(arrow: PyFileSystem) -> str:
    path = f"/arrow/{next(_NUMBERS)}"
    arrow.create_dir(path)
    return path


def write(arrow: PyFileSystem, path: str, content: bytes = b"") -> None:
    with arrow.open_output_stream(path) as stream:
        stream.write(content)


def test_the_file_system_is_a_value(arrow: PyFileSystem, cluster: LocalCluster) -> None:
    assert isinstance(arrow, PyFileSystem) and isinstance(arrow.handler, ThreefsHandler)
    assert arrow.type_name == "py::threefs"
    same = connect(cluster.address, timeout_s=30.0, attempt_timeout_s=9.0)
    assert arrow == same and arrow.equals(same)
    assert arrow != connect("threefs://127.0.0.1:1") and arrow != fs_module.LocalFileSystem()
    assert pickle.loads(pickle.dumps(arrow)) == arrow  # noqa: S301
    assert arrow.normalize_path("/a//b/") == "/a/b"


def test_attributes_of_many_paths(arrow: PyFileSystem, place: str) -> None:
    write(arrow, f"{place}/a", b"test")
    arrow.create_dir(f"{place}/b")
    before = datetime.now(UTC)
    a, b, none, below = arrow.get_file_info([f"{place}/a", f"{place}/b", f"{place}/none", f"{place}/a/below"])
    assert (a.path, a.base_name, a.extension, a.type, a.size) == (f"{place}/a", "a", "", FileType.File, 4)
    assert (b.type, b.size, b.is_file) == (FileType.Directory, None, False)
    assert none.type == below.type == FileType.NotFound and none.size is None and none.mtime is None
    assert abs((before - a.mtime).total_seconds()) < 3600
    again = arrow.get_file_info(f"{place}/a")
    assert (again.mtime_ns, again.size) == (a.mtime_ns, 4)


def test_links_are_what_they_lead_to(arrow: PyFileSystem, place: str) -> None:
    write(arrow, f"{place}/a", b"test")
    client = arrow.handler.fs.client
    client.symlink("a", f"{place}/link")
    client.symlink("none", f"{place}/broken")
    link, broken = arrow.get_file_info([f"{place}/link", f"{place}/broken"])
    assert (link.type, link.size, broken.type) == (FileType.File, 4, FileType.Unknown)


def test_selectors(arrow: PyFileSystem, place: str) -> None:
    for name in ("d/a", "d/e/b", "d/e/f/c"):
        arrow.create_dir(f"{place}/{name.rpartition('/')[0]}")
        write(arrow, f"{place}/{name}")

    def found(selector: FileSelector) -> set[str]:
        return {info.path.removeprefix(place + "/") for info in arrow.get_file_info(selector)}

    assert found(FileSelector(f"{place}/d")) == {"d/a", "d/e"}
    assert found(FileSelector(f"{place}/d/")) == {"d/a", "d/e"}
    assert found(FileSelector(place, recursive=True)) == {"d", "d/a", "d/e", "d/e/b", "d/e/f", "d/e/f/c"}
    assert found(FileSelector(f"{place}/none", allow_not_found=True)) == set()
    with pytest.raises(FileNotFoundError):
        found(FileSelector(f"{place}/none"))
    with pytest.raises(NotADirectoryError):
        found(FileSelector(f"{place}/d/a"))


def test_directories(arrow: PyFileSystem, place: str) -> None:
    arrow.create_dir(f"{place}/a", recursive=False)
    arrow.create_dir(f"{place}/a", recursive=False)
    with pytest.raises(FileNotFoundError):
        arrow.create_dir(f"{place}/x/y", recursive=False)
    arrow.create_dir(f"{place}/x/y")
    write(arrow, f"{place}/x/y/file")
    with pytest.raises(OSError, match="exists"):
        arrow.create_dir(f"{place}/x/y/file")
    arrow.delete_dir_contents(f"{place}/x")
    assert arrow.get_file_info(FileSelector(f"{place}/x")) == []
    arrow.delete_dir(f"{place}/x")
    with pytest.raises(FileNotFoundError):
        arrow.delete_dir(f"{place}/x")
    with pytest.raises(FileNotFoundError):
        arrow.delete_dir_contents(f"{place}/x")
    arrow.delete_dir_contents(f"{place}/x", missing_dir_ok=True)
    write(arrow, f"{place}/file")
    with pytest.raises(NotADirectoryError):
        arrow.delete_dir(f"{place}/file")
    for root in ("", "/", "//"):
        with pytest.raises(ValueError, match="delete_root_dir_contents"):
            arrow.delete_dir_contents(root)


def test_a_name_that_looks_like_a_pattern_is_a_name(arrow: PyFileSystem, place: str) -> None:
    for name in ("[ab]", "a", "b", "*"):
        write(arrow, f"{place}/top/{name}/file", b"content")
    arrow.delete_dir(f"{place}/top/[ab]")
    arrow.delete_dir(f"{place}/top/*")
    left = arrow.get_file_info(FileSelector(f"{place}/top"))
    assert sorted(each.base_name for each in left) == ["a", "b"]
    write(arrow, f"{place}/top/[ab]/file", b"content")
    arrow.delete_dir_contents(f"{place}/top")
    assert arrow.get_file_info(FileSelector(f"{place}/top", recursive=True)) == []


def test_files_move_and_are_copied_and_removed(arrow: PyFileSystem, place: str) -> None:
    write(arrow, f"{place}/a", b"1")
    write(arrow, f"{place}/b", b"2")
    arrow.move(f"{place}/a", f"{place}/b")
    assert arrow.open_input_stream(f"{place}/b").read() == b"1"
    arrow.copy_file(f"{place}/b", f"{place}/c")
    assert arrow.open_input_stream(f"{place}/c").read() == b"1"
    arrow.create_dir(f"{place}/d/e")
    arrow.move(f"{place}/d", f"{place}/f")
    assert arrow.get_file_info(f"{place}/f/e").type == FileType.Directory
    with pytest.raises(IsADirectoryError):
        arrow.move(f"{place}/c", f"{place}/f")
    with pytest.raises(IsADirectoryError):
        arrow.copy_file(f"{place}/f", f"{place}/g")
    with pytest.raises(FileNotFoundError):
        arrow.move(f"{place}/none", f"{place}/g")
    with pytest.raises(FileNotFoundError):
        arrow.copy_file(f"{place}/none", f"{place}/g")
    arrow.delete_file(f"{place}/c")
    with pytest.raises(FileNotFoundError):
        arrow.delete_file(f"{place}/c")
    with pytest.raises(IsADirectoryError):
        arrow.delete_file(f"{place}/f")


def test_streams(arrow: PyFileSystem, place: str) -> None:
    path = f"{place}/a"
    with arrow.open_output_stream(path) as stream:
        stream.write(CONTENT[:1000])
        assert arrow.get_file_info(path).type == FileType.NotFound
        stream.write(CONTENT[1000:])
    with arrow.open_append_stream(path) as stream:
        stream.write(b"more")
    with arrow.open_input_stream(path) as stream:
        assert stream.read(10) == CONTENT[:10] and stream.read() == CONTENT[10:] + b"more"
    with arrow.open_input_file(path) as file:
        assert file.size() == len(CONTENT) + 4 and file.seekable()
        assert file.read_at(5, 1000) == CONTENT[1000:1005]
        file.seek(-4, 2)
        assert file.read() == b"more" and file.tell() == len(CONTENT) + 4
        buffer = bytearray(7)
        file.seek(3)
        assert file.readinto(buffer) == 7 and buffer == CONTENT[3:10]
    with arrow.open_output_stream(f"{place}/a.gz", compression="gzip") as stream:
        stream.write(CONTENT)
    with arrow.open_input_stream(f"{place}/a.gz") as stream:
        assert stream.read() == CONTENT
    for opener in (arrow.open_input_stream, arrow.open_input_file):
        with pytest.raises(FileNotFoundError):
            opener(f"{place}/none")
        with pytest.raises(IsADirectoryError):
            opener(place)
    with pytest.raises(IsADirectoryError):
        arrow.open_output_stream(place)


def test_a_data_set_of_many_files(arrow: PyFileSystem, place: str) -> None:
    from pyarrow import dataset, parquet

    table = pa.table({"part": [number % 3 for number in range(9000)], "value": range(9000)})
    dataset.write_dataset(table, place, format="parquet", partitioning=["part"], filesystem=arrow)
    found = dataset.dataset(place, format="parquet", partitioning=["part"], filesystem=arrow)
    assert len(found.files) == 3 and found.count_rows() == 9000
    assert sorted(found.to_table(filter=dataset.field("part") == 1)["value"].to_pylist()) == list(range(1, 9000, 3))
    assert parquet.read_table(found.files[0], filesystem=arrow).num_rows == 3000
