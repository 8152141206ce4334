"""Two mounts of one cluster: locks, appends, and what the file system itself does with ranges of files."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

need_mounts()

CHUNK = 1 << 20
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
OFD_SETLK, OFD_SETLKW = 37, 38  # Python has no names for them before 3.12
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
LOCKS = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
print("begun", flush=True)
{lock}
print("locked", flush=True)
sys.stdin.read()
"""
APPENDS = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(220):
    os.write(file, b"%s %05d\\n" % (sys.argv[2].encode(), number))
    if number > 200:
        os.fsync(file)
"""


@pytest.fixture(scope="module")
def two(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    top = tmp_path_factory.mktemp("shared")
    with Mount(cluster.address, top / "here") as here, Mount(cluster.address, top / "there") as there:
        yield here, there


@pytest.fixture
def both(two: tuple[Path, Path], request: pytest.FixtureRequest) -> tuple[Path, Path]:
    here, there = (mount / request.node.name.replace("[", "-").strip("]") for mount in two)
    here.mkdir()
    return here, there


def locker(path: Path, lock: str) -> subprocess.Popen[str]:
    """A program that locks it and keeps it until its input ends. It has begun."""
    command = [sys.executable, "-c", LOCKS.format(lock=lock), str(path)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "begun\n"
    return program


def test_locks_of_an_open_file_end_when_it_is_closed(both: tuple[Path, Path]) -> None:
    """Those of F_OFD_SETLK: the kernel says nothing of them when the file is closed."""
    path = both[0] / "a"
    path.write_bytes(b"content")
    exclusive = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 5, 0)
    files = [os.open(each, os.O_RDWR) for each in (path, path, both[1] / "a")]
    fcntl.fcntl(files[0], OFD_SETLK, exclusive)
    for other in files[1:]:
        with pytest.raises(OSError) as caught:
            fcntl.fcntl(other, OFD_SETLK, exclusive)
        assert caught.value.errno in (errno.EAGAIN, errno.EACCES)
    os.close(os.dup(files[0]))
    with pytest.raises(OSError):
        fcntl.fcntl(files[2], OFD_SETLK, exclusive)
    os.close(files[0])
    fcntl.fcntl(files[2], OFD_SETLKW, exclusive)  # the close does not wait for it
    os.close(files[2])
    fcntl.fcntl(files[1], OFD_SETLKW, exclusive)
    os.close(files[1])


def test_what_was_written_under_a_lock_is_stored_before_its_file_is_closed(both: tuple[Path, Path]) -> None:
    """It was written through another descriptor than the one that has the lock, which is open for reading only."""
    (both[0] / "a").write_bytes(b"old")
    lock, data, theirs = (
        os.open(*each)
        for each in ((both[0] / "a", os.O_RDONLY), (both[0] / "a", os.O_RDWR), (both[1] / "a", os.O_RDWR))
    )
    for number in range(20):
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(data, b"new %02d" % number, 0)
        os.close(lock)
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert os.pread(theirs, 100, 0) == b"new %02d" % number
        fcntl.flock(theirs, fcntl.LOCK_UN)
        lock = os.open(both[0] / "a", os.O_RDONLY)
    for file in (lock, data, theirs):
        os.close(file)


@pytest.mark.parametrize("call", ["fcntl.flock(file, {})", "fcntl.lockf(file, {})"], ids=["flock", "fcntl"])
def test_one_of_two_mounts_has_the_lock(both: tuple[Path, Path], call: str) -> None:
    here, there = both
    (here / "a").write_bytes(b"0")
    lock = fcntl.flock if "flock" in call else fcntl.lockf
    with locker(here / "a", call.format("fcntl.LOCK_EX")) as first:
        assert first.stdout is not None and first.stdout.readline() == "locked\n"
        with open(there / "a", "r+b") as file:
            with pytest.raises(BlockingIOError):
                lock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            with locker(there / "a", call.format("fcntl.LOCK_EX")) as second:
                first.communicate("")
                assert second.stdout is not None and second.stdout.readline() == "locked\n"
                second.kill()  # its locks end with it
                second.wait()
                lock(file, fcntl.LOCK_EX)
                lock(file, fcntl.LOCK_UN)


@pytest.mark.parametrize("call", ["fcntl.flock(file, {})", "fcntl.lockf(file, {})"], ids=["flock", "fcntl"])
def test_a_signal_ends_the_wait_for_a_lock(both: tuple[Path, Path], call: str) -> None:
    here, there = both
    (here / "a").write_bytes(b"0")
    with open(there / "a", "r+b") as file:
        (fcntl.flock if "flock" in call else fcntl.lockf)(file, fcntl.LOCK_EX)
        with locker(here / "a", call.format("fcntl.LOCK_EX")) as program:
            program.send_signal(signal.SIGTERM)
            assert program.wait() == -signal.SIGTERM


def test_what_was_written_under_the_lock_is_read_under_the_lock(both: tuple[Path, Path]) -> None:
    (both[0] / "a").write_bytes(b"0")
    with open(both[0] / "a", "r+b", 0) as here, open(both[1] / "a", "r+b", 0) as there:
        for _ in range(10):
            for file in (here, there):
                fcntl.lockf(file, fcntl.LOCK_EX)
                found = int(os.pread(file.fileno(), 10, 0))
                os.pwrite(file.fileno(), b"%d" % (found + 1), 0)
                fcntl.lockf(file, fcntl.LOCK_UN)
        assert int(os.pread(here.fileno(), 10, 0)) == 20


def test_no_append_is_lost(both: tuple[Path, Path]) -> None:
    programs = [
        subprocess.Popen([sys.executable, "-c", APPENDS, str(both[number % 2] / "log"), f"{number}"])
        for number in range(4)
    ]
    assert [program.wait() for program in programs] == [0] * 4
    lines = (both[0] / "log").read_bytes().splitlines()
    assert sorted(lines) == sorted(b"%d %05d" % (who, n) for who in range(4) for n in range(220))
    for who in range(4):
        own = [line for line in lines if line.startswith(b"%d " % who)]
        assert own == sorted(own), "of one program, in its order"


def test_what_is_appended_can_be_read(both: tuple[Path, Path]) -> None:
    with open(both[0] / "a", "a+b", 0) as file:
        file.write(b"one ")
        assert os.fstat(file.fileno()).st_size == 4
        assert os.pread(file.fileno(), 10, 0) == b"one "
        with open(both[1] / "a", "ab") as other:
            other.write(b"two ")
        file.write(b"three " * 1_000_000)
        assert os.pread(file.fileno(), 14, 0) == b"one two three "
        os.ftruncate(file.fileno(), 8)
        file.write(b"four")
    assert (both[1] / "a").read_bytes() == b"one two four"


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def test_an_append_reads_up_to_the_end_that_another_mount_has_made(both: tuple[Path, Path]) -> None:
    here, there = (directory / "file" for directory in both)
    here.write_bytes(b"x" * 1000)
    with here.open("a+b", buffering=0) as file:
        assert os.pread(file.fileno(), 5000, 100) == b"x" * 900
        with there.open("r+b") as other:
            other.seek(1000)
            other.write(b"y" * 1000)
        assert os.pread(file.fileno(), 5000, 100) == b"x" * 900 + b"y" * 1000


def test_fallocate(both: tuple[Path, Path]) -> None:
    data = os.urandom(3 * CHUNK)
    with open(both[0] / "a", "w+b", 0) as file:
        file.write(data)
        fallocate(file.fileno(), 0, 0, 4 * CHUNK)
        assert os.fstat(file.fileno()).st_size == 4 * CHUNK
        fallocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, CHUNK, CHUNK)
        fallocate(file.fileno(), ZERO_RANGE, 10, 20)
        with pytest.raises(OSError) as caught:
            fallocate(file.fileno(), 8, 0, CHUNK)  # to take out a range
        assert caught.value.errno == errno.EOPNOTSUPP
        expected = data[:10] + bytes(20) + data[30:CHUNK] + bytes(CHUNK) + data[2 * CHUNK :] + bytes(CHUNK)
        assert os.pread(file.fileno(), 5 * CHUNK, 0) == expected
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == CHUNK
        assert os.lseek(file.fileno(), CHUNK, os.SEEK_DATA) == 2 * CHUNK
        assert os.lseek(file.fileno(), 2 * CHUNK, os.SEEK_HOLE) == 3 * CHUNK
        with pytest.raises(OSError) as caught:
            os.lseek(file.fileno(), 3 * CHUNK, os.SEEK_DATA)
        assert caught.value.errno == errno.ENXIO
    assert (both[1] / "a").read_bytes() == expected


def test_data_that_only_a_mapping_has_is_no_hole(both: tuple[Path, Path]) -> None:
    with open(both[0] / "a", "w+b", 0) as file:
        file.truncate(4 * CHUNK)
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 4 * CHUNK) as mapped:
            for chunk in (2, 1):
                mapped[chunk * CHUNK] = 1
                assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == chunk * CHUNK
            assert os.lseek(file.fileno(), CHUNK, os.SEEK_HOLE) > CHUNK
            assert mapped[2 * CHUNK] == 1


def test_copies_within_the_file_system(both: tuple[Path, Path]) -> None:
    data = os.urandom(2 * CHUNK + 5)
    (both[0] / "a").write_bytes(data)
    with open(both[0] / "a", "rb", 0) as source, open(both[0] / "b", "w+b", 0) as target:
        target.write(b"begin")
        done = 0
        while done < len(data):
            done += os.copy_file_range(source.fileno(), target.fileno(), len(data) - done)
        assert os.pread(target.fileno(), 10, 0) == b"begin" + data[:5]
    assert (both[1] / "b").read_bytes() == b"begin" + data


def test_a_file_without_a_name_gets_one(both: tuple[Path, Path]) -> None:
    fd = os.open(both[0], os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"nobody saw it")
    assert os.fstat(fd).st_nlink == 0 and os.listdir(both[0]) == []
    libc = ctypes.CDLL(None, use_errno=True)
    names = f"/proc/self/fd/{fd}".encode(), os.fsencode(both[0] / "named")
    assert libc.linkat(AT_FDCWD, names[0], AT_FDCWD, names[1], AT_SYMLINK_FOLLOW) == 0, os.strerror(ctypes.get_errno())
    assert (both[1] / "named").read_bytes() == b"nobody saw it"
    os.close(fd)
    os.close(os.open(both[0], os.O_TMPFILE | os.O_RDWR, 0o600))
    assert os.listdir(both[1]) == ["named"]


COUNTS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=1000, isolation_level=None)  # SQLite serves the next one by chance
for number in range(10):
    database.execute("begin immediate")
    (count,) = database.execute("select count from counts").fetchone()
    database.execute("update counts set count = ?", (count + 1,))
    database.execute("insert into log values (?, ?)", (count, "x" * 500))
    database.execute("commit")
"""


@pytest.mark.timeout(300)  # hundreds of flushes, one after the other
def test_a_database_on_two_mounts(both: tuple[Path, Path]) -> None:
    database = sqlite3.connect(both[0] / "db")
    database.execute("create table counts (count)")
    database.execute("insert into counts values (0)")
    database.execute("create table log (number, text)")
    database.commit()
    database.close()
    programs = [subprocess.Popen([sys.executable, "-c", COUNTS, str(both[number % 2] / "db")]) for number in range(4)]
    assert [program.wait() for program in programs] == [0] * 4
    database = sqlite3.connect(both[1] / "db")
    assert database.execute("select count from counts").fetchone() == (40,)
    assert database.execute("select number from log order by number").fetchall() == [(n,) for n in range(40)]
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()
