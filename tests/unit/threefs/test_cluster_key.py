import errno
import os
import stat
from pathlib import Path

import pytest

from threefs import cluster_key
from threefs.errors import AlreadyExists, InvalidArgument, InvalidSettings


def test_a_key_is_made_once_and_for_one_user(tmp_path: Path) -> None:
    key = cluster_key.make(tmp_path / "key")
    assert len(key) == 64 and cluster_key.read(tmp_path / "key") == key
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(AlreadyExists, match="never replaced"):
        cluster_key.make(tmp_path / "key")
    assert cluster_key.make(tmp_path / "other") != key
    assert cluster_key.make(tmp_path / "chosen", "x" * 20) == cluster_key.read(tmp_path / "chosen") == "x" * 20
    with pytest.raises(InvalidArgument, match="directory"):
        cluster_key.check_new(tmp_path / "missing" / "key")


def test_a_full_disk_leaves_no_part_of_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(os, "fsync", full)
        cluster_key.make(tmp_path / "key")
    assert not list(tmp_path.iterdir())
    cluster_key.make(tmp_path / "key")


def test_one_that_is_killed_while_it_makes_a_key_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It left an empty file, which was no key, and was never replaced."""
    left: list[dict[str, str]] = []
    real = os.fsync

    def look(fd: int) -> None:
        left.append({path.name: path.read_text() for path in tmp_path.iterdir()})
        real(fd)

    monkeypatch.setattr(os, "fsync", look)
    key = cluster_key.make(tmp_path / "key")
    assert "key" not in left[0] and left[-1] == {"key": f"{key}\n"}, "it has its name when it is durable"
    (tmp_path / "key").unlink()
    for name in left[0]:
        (tmp_path / name).write_text("a part")
    key = cluster_key.make(tmp_path / "key")
    assert (tmp_path / "key").read_text() == f"{key}\n"


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_make_a_key_at_once_one_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, links: bool) -> None:
    """One published the file that the other one was still to write. Not every file system has links."""
    made: list[str] = []

    def other(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        made.append(cluster_key.make(tmp_path / "key"))

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", other)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(AlreadyExists, match="never replaced"):
        cluster_key.make(tmp_path / "key")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"key": f"{made[0]}\n"}


def test_a_key_that_is_made_meanwhile_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def meanwhile(fd: int) -> None:
        (tmp_path / "key").write_text("x" * 20)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(AlreadyExists, match="never replaced"):
        cluster_key.make(tmp_path / "key")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"key": "x" * 20}


@pytest.mark.parametrize(("mode", "good"), [(0o600, True), (0o640, True), (0o660, False), (0o604, False)])
def test_a_key_that_others_may_read_or_exchange_is_none(tmp_path: Path, mode: int, good: bool) -> None:
    cluster_key.make(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    if good:
        cluster_key.read(tmp_path / "key")
    else:
        with pytest.raises(InvalidSettings, match="chmod 600"):
            cluster_key.read(tmp_path / "key")


@pytest.mark.parametrize("content", [b"", b"short\n", b"x" * 5000, b"two lines\nof some length", b"\xff\x00" * 20])
def test_invalid_keys_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(InvalidSettings, match="threefs key FILE"):
        cluster_key.read(tmp_path / "key")


def test_settings_name_it_once(tmp_path: Path) -> None:
    key = cluster_key.make(tmp_path / "key")
    assert cluster_key.of_settings("", "") == "" and cluster_key.of_settings("t", "") == "t"
    assert cluster_key.of_settings("", str(tmp_path / "key")) == key
    with pytest.raises(InvalidSettings, match="one of them"):
        cluster_key.of_settings("t", str(tmp_path / "key"))
    with pytest.raises(InvalidSettings, match="cannot be read"):
        cluster_key.of_settings("", str(tmp_path / "missing"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "node1", "fe80::1", "localhost.example.org"])
def test_a_host_that_others_reach_needs_a_key(host: str) -> None:
    with pytest.raises(InvalidSettings, match="`threefs key /etc/threefs/key` makes one"):
        cluster_key.check_host(host, "")
    cluster_key.check_host(host, "key")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    cluster_key.check_host(host, "")
