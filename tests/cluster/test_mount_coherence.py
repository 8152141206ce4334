"""Two mounts of one cluster: what one writes, the other sees. The bounds are those of docs/mount.md."""

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from threefs_client import Allocation
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY

import threefs
from tests.harness.cluster import LocalCluster
from tests.harness.mounts import PATIENCE_S, Mount, need_mounts, soon

need_mounts()

_LOOKS = """
import errno, os, sys
sys.stdin.read()
for call in (lambda: os.stat("."), lambda: os.listdir("."), lambda: os.mkdir("a")):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@pytest.fixture(scope="module")
def two(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    top = tmp_path_factory.mktemp("two")
    with Mount(cluster.address, top / "here") as here, Mount(cluster.address, top / "there") as there:
        yield here, there


@pytest.fixture
def both(two: tuple[Path, Path], request: pytest.FixtureRequest) -> tuple[Path, Path]:
    here, there = (mount / request.node.name for mount in two)
    here.mkdir()
    return here, there


def test_closed_here_is_there_when_it_is_opened(both: tuple[Path, Path]) -> None:
    here, there = both
    for number in range(10):
        content = b"%d" % number * (number + 1) * 5000
        (here / "a").write_bytes(content)
        assert (there / "a").read_bytes() == content
        (there / "a").write_bytes(content[::-1] + b"!")
        assert (here / "a").read_bytes() == content[::-1] + b"!"


def test_what_fdatasync_has_stored_is_there_soon(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"old" * 1000)
    assert (there / "a").read_bytes() == b"old" * 1000
    with open(here / "a", "r+b", buffering=0) as file:
        file.write(b"new")
        os.fdatasync(file.fileno())
        assert soon(lambda: (there / "a").read_bytes()[:3] == b"new")
        file.seek(0, os.SEEK_END)
        file.write(b"longer")
        os.fdatasync(file.fileno())
        assert (there / "a").read_bytes()[-6:] == b"longer"


def test_an_open_sees_the_length_at_once(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"")
    for number in range(1, 20):
        with open(here / "a", "ab") as file:
            file.write(b"x")
        with open(there / "a", "rb") as file:
            assert os.fstat(file.fileno()).st_size == number
        (there / "a").stat()


def test_a_replaced_file_is_the_new_one_when_it_is_opened(both: tuple[Path, Path]) -> None:
    here, there = both
    for number in range(10):
        (here / "new").write_bytes(b"%d" % number)
        os.rename(here / "new", here / "a")
        assert (there / "a").read_bytes() == b"%d" % number


def test_what_is_open_can_be_changed_without_a_name(both: tuple[Path, Path]) -> None:
    """Removed here or elsewhere."""
    for remover in both:
        (both[0] / "a").write_bytes(b"content")
        with open(both[1] / "a", "r+b") as file:
            (remover / "a").unlink()
            os.fchmod(file.fileno(), 0o604)
            os.fchown(file.fileno(), 7, 8)
            os.utime(file.fileno(), ns=(9, 9))
            os.ftruncate(file.fileno(), 3)
            os.setxattr(file.fileno(), "user.a", b"v")
            assert os.getxattr(file.fileno(), "user.a") == b"v"
            found = os.fstat(file.fileno())
            assert (found.st_mode & 0o777, found.st_uid, found.st_size, found.st_nlink) == (0o604, 7, 3, 0)
            assert file.read() == b"con"


def test_names_made_elsewhere_are_there_at_once(both: tuple[Path, Path]) -> None:
    here, there = both
    for number in range(10):
        assert not (there / f"{number}").exists()
        (here / f"{number}").touch()
        assert (there / f"{number}").exists()
    assert len(os.listdir(there)) == 10


def test_a_listing_that_is_known_is_never_an_old_one(both: tuple[Path, Path]) -> None:
    """So many entries that they are kept."""
    here, there = both
    for number in range(SMALL_DIRECTORY + 20):
        (here / f"{number:03}").touch()
    names = set(os.listdir(there))
    assert len(names) == SMALL_DIRECTORY + 20 and set(os.listdir(there)) == names == set(os.listdir(here))
    for number in range(3):
        (here / f"new{number}").touch()
        (here / f"{number:03}").unlink()
        os.rename(here / f"{number + 10:03}", here / f"moved{number}")
        names |= {f"new{number}", f"moved{number}"}
        names -= {f"{number:03}", f"{number + 10:03}"}
        assert set(os.listdir(there)) == names == set(os.listdir(here))


def test_removing_while_listing_skips_nothing(both: tuple[Path, Path]) -> None:
    here, there = both
    for number in range(SMALL_DIRECTORY + 100):
        (here / f"{number:03}").touch()
    for entry in os.scandir(there):
        os.unlink(entry.path)
    assert os.listdir(here) == os.listdir(there) == []


def test_attributes_and_names_that_are_gone_within_the_bound(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"1")
    assert (there / "a").stat().st_size == 1
    (here / "a").write_bytes(b"22")
    (here / "a").chmod(0o600)
    assert soon(lambda: (there / "a").stat().st_size == 2 and (there / "a").stat().st_mode & 0o777 == 0o600)
    (here / "a").unlink()
    assert soon(lambda: not (there / "a").exists())


def test_what_is_not_closed_is_seen_within_the_bound(both: tuple[Path, Path]) -> None:
    here, there = both
    with open(here / "a", "wb", buffering=0) as writer:
        writer.write(b"one")
        assert soon(lambda: (there / "a").stat().st_size == 3)
        with open(there / "a", "rb", buffering=0) as reader:
            assert reader.read() == b"one"
            writer.write(b", two")
            assert soon(lambda: reader.read() == b", two")


def test_a_file_removed_there_stays_open_here(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"content")
    with open(here / "a", "rb", buffering=0) as reader:
        (there / "a").unlink()
        assert soon(lambda: not (here / "a").exists())
        assert reader.read() == b"content"


@pytest.mark.skipif(shutil.which("stat") is None, reason="stat is not installed")
def test_files_know_when_they_were_made(both: tuple[Path, Path]) -> None:
    here, there = both
    before = time.time_ns()
    (here / "a").write_bytes(b"content")
    os.utime(here / "a", (1, 1))
    born = [subprocess.check_output(["stat", "--format=%.9W %Y", mount / "a"], text=True).split() for mount in both]
    assert born[0] == born[1] and born[0][1] == "1"
    if born[0][0] == "0.000000000":
        pytest.skip("this kernel does not ask for it")
    assert before <= int(born[0][0].replace(".", "")) <= time.time_ns()
    assert there.stat().st_mtime >= before // 10**9


def test_a_working_directory_that_was_removed_elsewhere_is_gone(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", _LOOKS], cwd=here / "a", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    (there / "a").rmdir()
    assert soon(lambda: not (here / "a").exists())
    told, _ = program.communicate()
    assert set(told.split()) <= {"ENOENT", "ESTALE"} and told.count("\n") == 3


def test_a_time_that_is_set_back_hides_no_change(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"old!" * 2048)
    time.sleep(1.5)
    for _ in range(2):
        assert (here / "a").read_bytes() == b"old!" * 2048
    was = os.stat(there / "a")
    with open(there / "a", "r+b") as file:
        file.write(b"new!" * 2048)
    os.utime(there / "a", ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (here / "a").read_bytes() == b"new!" * 2048


@pytest.mark.parametrize("end", [os.fsync, os.close])
def test_the_times_of_a_written_file_stay_once_a_program_has_seen_them(
    both: tuple[Path, Path], end: Callable[[int], None]
) -> None:
    here, there = both
    file = os.open(here / "a", os.O_CREAT | os.O_WRONLY)
    os.write(file, b"content")
    seen = os.fstat(file)
    time.sleep(0.3)
    end(file)
    time.sleep(1.1)  # the kernel asks anew
    for now in (os.stat(here / "a"), os.stat(there / "a")):
        assert (now.st_mtime_ns, now.st_ctime_ns) == (seen.st_mtime_ns, seen.st_ctime_ns)
    if end is os.fsync:
        os.close(file)


@pytest.mark.parametrize("mode", [0, Allocation.PUNCH_HOLE, Allocation.ZERO_RANGE])
def test_an_allocation_changes_the_times_that_a_program_has_seen(both: tuple[Path, Path], mode: int) -> None:
    """A backup that compares times would miss a hole."""
    here, there = both
    with open(here / "a", "w+b", buffering=0) as file:
        file.write(b"content")
        seen = os.fstat(file.fileno())
        os.fsync(file.fileno())
        mode |= Allocation.KEEP_LENGTH
        assert ctypes.CDLL(None).fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(7)) == 0
    for now in (os.stat(here / "a"), os.stat(there / "a")):
        assert now.st_mtime_ns > seen.st_mtime_ns and now.st_ctime_ns > seen.st_ctime_ns


def test_what_is_mapped_is_seen_within_the_bound(both: tuple[Path, Path]) -> None:
    here, there = both
    (here / "a").write_bytes(b"old!" * 1024)
    time.sleep(1.2)
    with open(here / "a", "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as mapped:
        was = os.stat(there / "a")
        for content in (b"new!", b"newer"):
            assert mapped[:4] != content[-4:]
            with open(there / "a", "r+b") as writer:
                writer.write(content[-4:] * 1024)
            os.utime(there / "a", ns=(was.st_atime_ns, was.st_mtime_ns))
            assert soon(lambda content=content: mapped[:4] == content[-4:])  # type: ignore[misc]
            assert os.pread(file.fileno(), 4, 0) == content[-4:]


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_WRONLY | os.O_APPEND])
def test_the_write_of_a_user_takes_away_the_capabilities_that_were_set_elsewhere(
    two: tuple[Path, Path], flags: int
) -> None:
    """The kernel has asked for them before, or never asks."""
    here, there = (mount / f"capable-{flags}" for mount in two)
    here.write_bytes(b"#!/bin/sh\n")
    capability = struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)
    file = os.open(here, flags)

    def write_as_a_user() -> None:
        os.seteuid(1001)
        try:
            os.write(file, b"content")
        finally:
            os.seteuid(0)

    write_as_a_user()
    os.fsync(file)
    os.setxattr(there, "security.capability", capability)
    write_as_a_user()
    os.fsync(file)
    assert os.listxattr(there) == []
    write_as_a_user()
    os.setxattr(here, "security.capability", capability)
    os.close(file)
    assert os.listxattr(there) == ["security.capability"], "they were set after the last write"


def follow(file: Any, whole: int) -> tuple[int, int]:
    """Reads on as bytes come: how many came, and how many of them were zeros. The kernel may believe in an end for as
    long as it may keep attributes."""
    read = zeros = 0
    deadline = time.monotonic() + PATIENCE_S
    while read < whole and time.monotonic() < deadline:
        file.seek(read)
        data = file.read(4 << 20)
        read += len(data)
        zeros += data.count(0)
    return read, zeros


@pytest.mark.parametrize("reader", ["library", "mount"])
def test_a_reader_that_follows_appends_sees_no_zeros(
    both: tuple[Path, Path], cluster: LocalCluster, reader: str
) -> None:
    """Two append, on two mounts."""
    (both[0] / "log").write_bytes(b"")

    def append(path: Path) -> None:
        with open(path, "ab", buffering=0) as file:
            for _ in range(20):
                file.write(b"x" * (1 << 20))
                os.fsync(file.fileno())

    with threefs.connect(cluster.address) as fs, ThreadPoolExecutor(3) as threads:
        path = f"/{both[0].name}/log"
        with fs.open(path, "rb") if reader == "library" else open(both[0] / "log", "rb", buffering=0) as file:
            followed = threads.submit(follow, file, 40 << 20)
            for writer in [threads.submit(append, where / "log") for where in both]:
                writer.result()
            assert followed.result() == (40 << 20, 0)


@pytest.mark.parametrize("reader", ["library", "mount"])
def test_a_read_of_a_file_that_is_replaced_in_place_sees_no_zeros(
    both: tuple[Path, Path], cluster: LocalCluster, reader: str
) -> None:
    """Nor where the kernel has asked for several parts at once, and all answers are short."""
    here, content = both[0], b"x" * (4 << 20)
    (here / "a").write_bytes(content)
    times = 0

    def replace() -> None:
        began = time.monotonic()
        while (lasted := time.monotonic() - began) < 6 or (times <= 5 and lasted < 60):
            (here / "a").write_bytes(content)
            time.sleep(0.03)

    with threefs.connect(cluster.address) as fs, ThreadPoolExecutor(1) as threads:
        replacing = threads.submit(replace)
        while not replacing.done():
            if reader == "library":
                assert 0 not in fs.read_file(f"/{here.name}/a")
            else:
                assert 0 not in (both[1] / "a").read_bytes()
            times += 1
        replacing.result()
        assert times > 5


class Mixed:
    """One file, changed on one mount or the other in any way that is whole when it ends; and what it must be.

    All goes through open files: a path alone may lead to the file that was replaced, for as long as names are cached.
    """

    def __init__(self, both: tuple[Path, Path], seed: int) -> None:
        self.random = Random(seed)
        self.both = both
        self.content = bytes(9000)
        (both[0] / "a").write_bytes(self.content)
        self.changes = (self.overwrite, self.append, self.cut, self.replace, self.set_mode, self.copy_times)

    @property
    def place(self) -> Path:
        return self.random.choice(self.both) / "a"

    def overwrite(self) -> None:
        """And nothing but the content shows it."""
        data = self.random.randbytes(self.random.randrange(1, 5000))
        at = self.random.randrange(0, max(1, len(self.content) - len(data)))
        with open(self.place, "r+b", buffering=0) as file:
            was = os.fstat(file.fileno())
            os.pwrite(file.fileno(), data, at)
            os.utime(file.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))
        self.content = self.content[:at] + data + self.content[at + len(data) :]

    def append(self) -> None:
        data = self.random.randbytes(self.random.randrange(1, 3000))
        with open(self.place, "ab") as file:
            file.write(data)
        self.content += data

    def cut(self) -> None:
        length = self.random.randrange(0, 9000)
        with open(self.place, "r+b") as file:
            file.truncate(length)
        self.content = self.content[:length].ljust(length, b"\0")

    def replace(self) -> None:
        place, self.content = self.place, self.random.randbytes(len(self.content))
        if self.random.random() < 0.5:
            place.write_bytes(self.content)
            return
        place.with_name("new").write_bytes(self.content)
        os.rename(place.with_name("new"), place)

    def set_mode(self) -> None:
        with open(self.place, "rb") as file:
            os.fchmod(file.fileno(), self.random.choice((0o600, 0o640, 0o644)))

    def copy_times(self) -> None:
        with open(self.place, "rb") as file:
            os.utime(file.fileno(), ns=(1, self.random.randrange(3)))

    def read(self) -> None:
        place = self.place
        with open(place, "rb") as file:
            size, found = os.fstat(file.fileno()).st_size, file.read()
        where = self.both.index(place.parent)
        assert (size, len(found)) == (len(self.content), len(self.content)), f"the length, on mount {where}"
        assert found == self.content, f"the content, on mount {where}"


@pytest.mark.parametrize("seed", range(4))
def test_an_open_sees_all_that_was_closed_before(both: tuple[Path, Path], seed: int) -> None:
    mixed = Mixed(both, seed)
    for number in range(150):
        change = mixed.random.choice(mixed.changes)
        change()
        for _ in range(mixed.random.randrange(3)):
            try:
                mixed.read()
            except AssertionError as error:
                raise AssertionError(f"after step {number}, {change.__name__}: {error}") from None
