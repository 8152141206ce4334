import os
from pathlib import Path

import pytest
from threefs_cli.safe_open import open_file

from threefs.errors import NotSupported


def content(top: Path, path: Path) -> bytes:
    with open(open_file(str(top), str(path)), "rb") as file:
        return file.read()


def test_what_was_found_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x")
    assert content(tmp_path, tmp_path / "a" / "b" / "file") == b"x"
    assert content(tmp_path / "a" / "b" / "file", tmp_path / "a" / "b" / "file") == b"x"
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert content(Path("file"), Path("file")) == b"x"


def test_what_was_put_in_its_place_is_not(tmp_path: Path) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(b"secret")
    (tmp_path / "top" / "file").symlink_to(tmp_path / "secret" / "file")
    (tmp_path / "top" / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "top" / "pipe")
    for name in ("file", "link/file"):
        with pytest.raises(OSError, match=f"top/{name}"):
            open_file(str(tmp_path / "top"), str(tmp_path / "top" / name))
    for name in ("pipe", "a"):
        with pytest.raises(NotSupported, match="not a file any more"):
            open_file(str(tmp_path / "top"), str(tmp_path / "top" / name))
