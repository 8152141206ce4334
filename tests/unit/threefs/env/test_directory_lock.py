import os
from pathlib import Path

import pytest

from tests.harness.other_user import NOBODY, needs_root
from threefs.env.directory_lock import check_place, close_to_others, owned
from threefs.errors import NotADirectory, PermissionDenied, Unavailable


def test_a_directory_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with owned(tmp_path / "new" / "data"):
        with pytest.raises(Unavailable, match=f"is in use by process {os.getpid()}"), owned(tmp_path / "new" / "data"):
            pass
        with owned(tmp_path / "other"):
            pass
    with owned(tmp_path / "new" / "data"):
        pass


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectory, match=f"{tmp_path}/file is not a directory"), owned(tmp_path / "file"):
        pass


def test_a_new_directory_is_private_and_an_open_one_is_made_private(tmp_path: Path) -> None:
    with owned(tmp_path / "new"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o2775)
    close_to_others(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o7777 == 0o2700


@needs_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    with pytest.raises(PermissionDenied, match=f"belongs to user {NOBODY}"):
        close_to_others(tmp_path / "theirs")


@needs_root
def test_root_makes_nothing_in_the_directory_of_another_user(tmp_path: Path) -> None:
    check_place(tmp_path)
    check_place(tmp_path / "a" / "b")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    for path in (tmp_path / "theirs", tmp_path / "theirs" / "a" / "b"):
        with pytest.raises(PermissionDenied, match=f"{tmp_path}/theirs belongs to user {NOBODY}"):
            check_place(path)
    (tmp_path / "theirs" / "ours").mkdir()
    check_place(tmp_path / "theirs" / "ours" / "a")
