import errno
import os
import stat
from pathlib import Path

import pytest
from threefs_fsspec.local_file import new_file

_OTHER = 12345


def put(place: str | bytes | Path, content: bytes = b"new") -> None:
    with new_file(place) as file:
        os.write(file, content)


def test_a_file_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    put(tmp_path / "a")
    with (tmp_path / "a").open() as old:
        put(tmp_path / "a", b"newer")
        assert old.read() == "new"
    assert (tmp_path / "a").read_bytes() == b"newer" and len(list(tmp_path.iterdir())) == 1


def test_no_program_gets_other_content_and_stays_privileged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o4755)
    put(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_a_file_of_another_user_stays_that_users(tmp_path: Path) -> None:
    """Root made it its own, with the set-user-id bit that the user had set: a program that runs as root."""
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", _OTHER, _OTHER)
    (tmp_path / "a").chmod(0o4600)
    put(tmp_path / "a")
    found = (tmp_path / "a").stat()
    assert (found.st_uid, found.st_gid) == (_OTHER, _OTHER) and (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_a_program_of_another_user_gets_other_content_and_is_not_privileged_any_more(tmp_path: Path) -> None:
    """A write of root leaves the bit, and so the program that came out of the cluster would run as that user."""
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", _OTHER, _OTHER)
    (tmp_path / "a").chmod(0o6755)
    with new_file(tmp_path / "a"):
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
    assert (tmp_path / "a").stat().st_uid == _OTHER


def test_a_file_that_would_be_written_in_place_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that may make one is refused for a file of another user in a directory like /tmp."""
    (tmp_path / "a").write_bytes(b"old")

    def goes(directory: str, mode: int) -> bool:
        (tmp_path / "a").unlink()
        return False

    monkeypatch.setattr(os, "access", goes)
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to any group")
def test_a_file_stays_with_its_group(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", -1, _OTHER)
    (tmp_path / "a").chmod(0o640)
    put(tmp_path / "a")
    found = (tmp_path / "a").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (_OTHER, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to any group")
def test_a_group_that_has_no_number_in_this_user_namespace_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(descriptor: int, user: int, group: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", -1, _OTHER)
    (tmp_path / "a").chmod(0o664)
    monkeypatch.setattr(os, "fchown", unknown)
    put(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o604 and (tmp_path / "a").read_bytes() == b"new"


def test_paths_of_all_kinds(tmp_path: Path) -> None:
    places: list[str | bytes | Path] = [tmp_path / "a", str(tmp_path / "a"), os.fsencode(tmp_path / "a")]
    for number, place in enumerate(places):
        put(place, b"%d" % number)
        assert (tmp_path / "a").read_bytes() == b"%d" % number


def test_a_descriptor_of_the_process_is_written_to(tmp_path: Path) -> None:
    """What a shell had redirected to a file was replaced, and a pipe was no file."""
    with (tmp_path / "log").open("ab", buffering=0) as log:
        log.write(b"before ")
        put(f"/dev/fd/{log.fileno()}")
        log.write(b" after")
    assert (tmp_path / "log").read_bytes() == b"before new after"
    reader, writer = os.pipe()
    put(f"/proc/self/fd/{writer}")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    os.close(writer)


def test_a_path_with_a_slash_at_its_end_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        put(f"{tmp_path}/a/")
    assert not list(tmp_path.iterdir())
