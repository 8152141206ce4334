from pathlib import Path

import pytest
from threefs_data.interchange.exchange_directory import Directory, new_directory

from tests.harness.local_files import LocalFiles
from threefs.errors import AlreadyExists, Corrupt, NotFound


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    (tmp_path / "cluster").mkdir()
    return LocalFiles(str(tmp_path / "cluster"))


@pytest.fixture(params=["local", "cluster"])
def top(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"local": str(tmp_path), "cluster": "threefs://"}[request.param]


def test_a_directory_appears_whole(fs: LocalFiles, top: str) -> None:
    with new_directory(fs, f"{top}/deep/new/") as made, made.create("b") as file:
        file.write(b"content")
        with pytest.raises(NotFound):
            Directory(fs, f"{top}/deep/new").open("b")
    directory = Directory(fs, f"{top}/deep/new")
    assert directory.names() == ["b"]
    with directory.open("b") as file:
        file.seek(3)
        assert file.read() == b"tent"
    with pytest.raises(AlreadyExists, match="deep/new is there already"), new_directory(fs, f"{top}/deep/new"):
        pass


def test_nothing_is_left_after_an_error(fs: LocalFiles, top: str) -> None:
    with pytest.raises(KeyError), new_directory(fs, f"{top}/deep/new") as made:
        with made.create("b") as file:
            file.write(b"content")
        raise KeyError
    assert Directory(fs, f"{top}/deep").names() == []
    with new_directory(fs, f"{top}/deep/new"):
        pass


@pytest.mark.parametrize("name", ["../b", "/etc/passwd", "a/../../b", "", "a//b", "./b"])
def test_names_do_not_lead_out_of_it(fs: LocalFiles, top: str, name: str) -> None:
    with pytest.raises(Corrupt, match="leads elsewhere"):
        Directory(fs, f"{top}/deep").open(name)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_what_no_file_can_be_called(fs: LocalFiles, top: str, name: str) -> None:
    with pytest.raises(Corrupt, match="is no name of a file"):
        Directory(fs, f"{top}/deep").open(name)


def test_what_is_not_there(fs: LocalFiles, top: str) -> None:
    with pytest.raises(NotFound):
        Directory(fs, f"{top}/nowhere").open("a")
    if not top.startswith("threefs"):
        with pytest.raises(NotFound):
            Directory(fs, f"{top}/nowhere").names()
