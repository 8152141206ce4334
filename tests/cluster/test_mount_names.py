"""Two mounts of one cluster: what a name leads to that was moved, removed or replaced on the other machine."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts, soon

need_mounts()


@pytest.fixture(scope="module")
def two(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    top = tmp_path_factory.mktemp("names")
    with Mount(cluster.address, top / "here") as here, Mount(cluster.address, top / "there") as there:
        yield here, there


_BY_NAME: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], Any]] = {
    "truncate": (lambda path: os.truncate(path, 3), lambda path: path.read_bytes(), b"new"),
    "chmod": (lambda path: path.chmod(0o604), lambda path: path.stat().st_mode & 0o777, 0o604),
    "chown": (lambda path: os.chown(path, 7, 8), lambda path: (path.stat().st_uid, path.stat().st_gid), (7, 8)),
    "utime": (lambda path: os.utime(path, ns=(9, 9)), lambda path: path.stat().st_mtime_ns, 9),
    "xattr": (lambda path: os.setxattr(path, "user.a", b"v"), lambda path: os.getxattr(path, "user.a"), b"v"),
    "link": (lambda path: os.link(path, path.with_name("b")), lambda path: path.stat().st_nlink, 2),
}


def _or_none(look: Callable[[Path], Any], path: Path) -> Any:
    try:
        return look(path)
    except OSError:
        return None


@pytest.mark.parametrize("call", _BY_NAME)
def test_a_change_by_name_is_one_of_what_has_replaced_the_file(
    cluster: LocalCluster, two: tuple[Path, Path], tmp_path: Path, call: str
) -> None:
    """However long a mount keeps names; and whoever has the old one open finds it as it was."""
    change, look, expected = _BY_NAME[call]
    with Mount(cluster.address, tmp_path / "mnt", "--cache", "600") as remembering:
        here, there = two[0] / f"by-name-{call}", remembering / f"by-name-{call}"
        here.mkdir()
        (here / "a").write_bytes(b"old content")
        with open(here / "a", "rb") as old:
            before = os.fstat(old.fileno())
            assert (there / "a").stat().st_size == 11
            (here / "new").write_bytes(b"new content")
            (here / "new").rename(here / "a")
            change(there / "a")
            assert soon(lambda: _or_none(look, here / "a") == expected)
            after = os.fstat(old.fileno())
            assert old.read() == b"old content"
            assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (
                before.st_mode,
                before.st_uid,
                before.st_mtime_ns,
            )
            assert after.st_nlink == 0


def test_what_was_moved_elsewhere_is_not_what_its_old_name_means(cluster: LocalCluster, tmp_path: Path) -> None:
    """However long a mount keeps names: else who writes a new file would write over the one that was put aside."""
    with Mount(cluster.address, tmp_path / "a") as a, Mount(cluster.address, tmp_path / "b", "--cache", "600") as b:
        here, there = a / "moved-elsewhere", b / "moved-elsewhere"
        here.mkdir()
        for look in (lambda: os.stat(there / "data"), lambda: [each.stat() for each in os.scandir(there)]):
            (here / "data").write_bytes(b"precious")
            look()
            os.rename(here / "data", here / "backup")
            (there / "data").write_bytes(b"new")
            assert (here / "backup").read_bytes() == b"precious" and (here / "data").read_bytes() == b"new"
            os.link(here / "data", here / "other")
            os.stat(there / "other")
            (here / "other").unlink()
            (there / "other").write_bytes(b"another")
            assert (here / "data").read_bytes() == b"new"
            os.rename(here / "other", here / "moved")
            with pytest.raises(FileNotFoundError):
                os.truncate(there / "other", 0)
            assert (here / "moved").read_bytes() == b"another"
            os.rename(there / "moved", there / "mine")  # what is moved here needs no second look
            (there / "mine").write_bytes(b"again")
            assert (here / "mine").read_bytes() == b"again"
            for name in os.listdir(here):
                (here / name).unlink()


@pytest.mark.parametrize("write", [lambda path: path.write_bytes(b"M2"), lambda path: os.truncate(path, 0)])
def test_a_former_name_does_not_lead_to_the_file_where_its_new_name_is_known(
    cluster: LocalCluster, two: tuple[Path, Path], tmp_path: Path, write: Callable[[Path], Any]
) -> None:
    """Two machines make files of their own under one name, and rename them: the second one wrote into the first's."""
    with Mount(cluster.address, tmp_path / "mnt", "--cache", "600") as remembering:
        here, there = two[0] / tmp_path.name, remembering / tmp_path.name
        here.mkdir()
        (here / "tmp").write_bytes(b"result")
        os.stat(there / "tmp")
        os.rename(here / "tmp", here / "first")
        for _ in range(2):
            assert (there / "first").read_bytes() == b"result"
        with contextlib.suppress(FileNotFoundError):
            write(there / "tmp")
            os.rename(there / "tmp", there / "second")
            assert (here / "second").read_bytes() == b"M2"
        assert (here / "first").read_bytes() == b"result"
        (there / "first").write_bytes(b"changed")  # under the new name it is as any other
        os.truncate(there / "first", 6)
        assert (here / "first").read_bytes() == b"change"


def test_a_program_comes_back_to_a_right_name_after_a_slow_look_up(
    cluster: LocalCluster, two: tuple[Path, Path], tmp_path: Path
) -> None:
    """While the kernel looked the name up again a meta service failed over, and the program got ESTALE."""
    process = cluster.meta.process
    goes_on = threading.Timer(2.0, process.send_signal, [signal.SIGCONT])
    with Mount(cluster.address, tmp_path / "mnt", "--cache", "600") as remembering:
        here, there = two[0] / "slow", remembering / "slow"
        here.mkdir()
        (here / "a").write_bytes(b"content")
        os.stat(there / "a")
        os.rename(here / "a", here / "b")
        os.stat(there / "b")
        process.send_signal(signal.SIGSTOP)
        goes_on.start()
        try:
            assert (there / "b").read_bytes() == b"content"
        finally:
            goes_on.join()


def test_a_name_that_was_given_to_something_else_before_it_was_moved(two: tuple[Path, Path]) -> None:
    """The kernel takes along what it knew under that name."""
    here, there = (mount / "given" for mount in two)
    here.mkdir()
    for _ in range(3):
        (here / "x").write_bytes(b"old")
        os.stat(there / "x")
        os.rename(here / "x", here / "z")
        (here / "x").write_bytes(b"new")
        os.rename(there / "x", there / "y")
        assert (there / "y").read_bytes() == b"new" and (there / "z").read_bytes() == b"old"
        (there / "y").unlink()
