import gc
import io
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.interchange import webdataset
from threefs_data.interchange.exchange_directory import Directory

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, FileTooLarge, InvalidArgument, NotSupported, ThreefsError

SAMPLES = [bytes([number]) * (number * 37 % 1500) for number in range(50)]


def directory_of(path: Path) -> Directory:
    return Directory(LocalFiles("/nonexistent"), str(path))


def one_tar(tmp_path: Path, members: list[tuple[str, bytes]], kind: int = tarfile.PAX_FORMAT) -> Directory:
    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return directory_of(tmp_path)


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    assert webdataset.write(directory, SAMPLES, "bin", 5000) == 50
    assert len(directory.names()) > 3
    assert list(webdataset.read(directory, "bin")) == SAMPLES


def test_tar_reads_them(tmp_path: Path) -> None:
    webdataset.write(directory_of(tmp_path), SAMPLES[:3], "bin", 1 << 20)
    with tarfile.open(tmp_path / "shard-000000.tar") as tar:
        assert tar.getnames() == ["000000000000.bin", "000000000001.bin", "000000000002.bin"]
        assert [tar.extractfile(name).read() for name in tar.getnames()] == SAMPLES[:3]  # type: ignore[union-attr]


def test_webdataset_reads_them(tmp_path: Path) -> None:
    library: Any = pytest.importorskip("webdataset", reason="webdataset is not installed (make ml-venv)")
    webdataset.write(directory_of(tmp_path), SAMPLES, "bin", 20_000)
    urls = [str(path) for path in sorted(tmp_path.iterdir())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves its files open
        assert [sample["bin"] for sample in library.WebDataset(urls, shardshuffle=False)] == SAMPLES
        gc.collect()


def test_what_webdataset_wrote_is_read(tmp_path: Path) -> None:
    library: Any = pytest.importorskip("webdataset", reason="webdataset is not installed (make ml-venv)")
    with library.TarWriter(str(tmp_path / "a.tar")) as writer:
        for number, sample in enumerate(SAMPLES):
            writer.write({"__key__": f"deep/{number:03d}", "txt": "a text", "input.bin": sample})
    assert list(webdataset.read(directory_of(tmp_path), "input.bin")) == SAMPLES
    assert list(webdataset.read(directory_of(tmp_path), "txt")) == [b"a text"] * 50


def test_files_of_no_sample_are_passed_over(tmp_path: Path) -> None:
    names = ["README", "d/LICENSE", "a.bin", "._a.bin", "a.txt", "d/._b.bin", "d/b.bin", ".hidden", "c."]
    directory = one_tar(tmp_path, [(name, name.encode()) for name in names])
    assert list(webdataset.read(directory, "bin")) == [b"a.bin", b"d/b.bin"]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_kinds_of_tar_files(tmp_path: Path, kind: int) -> None:
    name = "d" * 80 + "/" + ("n" * 90 if kind == tarfile.USTAR_FORMAT else "é" * 110)
    directory = one_tar(tmp_path, [(f"{name}.json", b"{}"), (f"{name}.bin", b"one"), ("b.bin", b"")], kind)
    assert list(webdataset.read(directory, "bin")) in ([b"one", b""],)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.txt", b""), ("b.bin", b"")], "the sample a has no file .bin"),
        ([("a.bin", b""), ("b.txt", b"")], "the sample b has no file .bin"),
        ([("a.bin", b""), ("a.bin", b"")], "a.bin twice"),
    ],
)
def test_incomplete_samples_are_refused(tmp_path: Path, members: list[tuple[str, bytes]], message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        list(webdataset.read(one_tar(tmp_path, members), "bin"))


@pytest.mark.parametrize(
    ("size", "kind", "error", "message"),
    [
        (1 << 40, tarfile.REGTYPE, Corrupt, "ends within 'a.bin'"),
        (100, tarfile.REGTYPE, Corrupt, "ends within 'a.bin'"),
        (1 << 17, tarfile.XHDTYPE, Corrupt, "an extended header of 131072 bytes"),
        (1 << 17, tarfile.GNUTYPE_LONGNAME, Corrupt, "an extended header of 131072 bytes"),
        ((1 << 30) + 1, tarfile.REGTYPE, FileTooLarge, "a sample has at most"),
    ],
)
def test_hostile_sizes_are_refused(
    tmp_path: Path, size: int, kind: bytes, error: type[Exception], message: str
) -> None:
    member = tarfile.TarInfo("a.bin")
    member.size, member.type = size, kind
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        if size not in (100, 1 << 40):
            file.truncate(512 + size + -size % 512)  # a hole
    with pytest.raises(error, match=message):
        list(webdataset.read(directory_of(tmp_path), "bin"))


@given(st.binary(max_size=600), st.integers(0, 2000))
def test_damage_is_an_error_in_words(tmp_path_factory: pytest.TempPathFactory, damage: bytes, at: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.mkdir(exist_ok=True)
    directory = one_tar(path, [("é" * 120 + ".bin", b"one" * 300), ("b.bin", b"two")])
    content = (path / "a.tar").read_bytes()
    (path / "a.tar").write_bytes(content[:at] + damage + content[at + len(damage) :])
    try:
        assert sum(map(len, webdataset.read(directory, "bin"))) < 20_000
    except ThreefsError as error:
        assert "a.tar" in str(error)


def test_no_tar_files_and_impossible_extensions(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="no tar files"):
        list(webdataset.read(directory_of(tmp_path), "bin"))
    with pytest.raises(InvalidArgument, match="extension"):
        webdataset.write(directory_of(tmp_path), [], "a/b", 1000)


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_with_holes_are_refused(tmp_path: Path, kind: int) -> None:
    """GNU tar -S stores the parts between the holes, and where they lie."""
    member = tarfile.TarInfo("a.bin")
    member.size = 512
    if kind == tarfile.GNU_FORMAT:
        member.type = tarfile.GNUTYPE_SPARSE
    else:
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    header = member.tobuf(kind)  # type: ignore[arg-type]
    (tmp_path / "a.tar").write_bytes(header + bytes(512))
    with pytest.raises(NotSupported, match=r"'a\.bin' is stored with holes"):
        list(webdataset.read(directory_of(tmp_path), "bin"))
