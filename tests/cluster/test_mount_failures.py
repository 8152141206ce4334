"""A mount while the services behind it die and return."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from threefs_mount import mountpoints

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

need_mounts()

pytestmark = pytest.mark.timeout(300)
DIRTY_FILES = 16
#: Of the calls of a mount that nobody answers for a while. On a busy machine an answer may take seconds: no call must
#: fail for that before the services are killed, nor when they are back.
TIMEOUT_S = 6


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of the test's own, which it may kill."""
    with LocalCluster(tmp_path / "cluster", storage=2, replicas=2, targets_per_disk=2, lease_s=2.0) as running:
        yield running


def test_calls_wait_for_services_that_return(lonely: LocalCluster, tmp_path: Path) -> None:
    with Mount(lonely.address, tmp_path / "mnt") as root, open(root / "open", "w+b", buffering=0) as file:
        for number, program in enumerate((lonely.meta, *lonely.storage.values(), lonely.manager)):
            program.kill()
            program.start()
            file.write(b"%d" % number)
            os.fsync(file.fileno())
            (root / f"made-{number}").write_bytes(b"x" * 100_000)
            assert (root / f"made-{number}").read_bytes() == b"x" * 100_000
        file.seek(0)
        assert file.read() == b"0123"
        assert sorted(os.listdir(root)) == [*(f"made-{number}" for number in range(4)), "open"]


def test_calls_fail_when_no_service_returns(lonely: LocalCluster, tmp_path: Path) -> None:
    with Mount(lonely.address, tmp_path / "mnt", "--timeout", str(TIMEOUT_S), "--cache", "0") as root:
        (root / "a").write_bytes(b"content")
        file = os.open(root / "a", os.O_RDWR)
        for program in (lonely.meta, *lonely.storage.values()):
            program.kill()
        os.pwrite(file, b"lost", 0)
        with pytest.raises(OSError) as caught:
            os.fsync(file)
        assert caught.value.errno in (errno.EIO, errno.ETIMEDOUT)
        for call in (
            lambda: os.stat(root / "a"),
            lambda: os.listdir(root),
            lambda: (root / "new").touch(),
            lambda: os.unlink(root / "a"),
        ):
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno in (errno.EIO, errno.ETIMEDOUT)
        for program in (lonely.meta, *lonely.storage.values()):
            program.start()
        os.pwrite(file, b"again", 2)
        os.close(file)
        assert (root / "a").read_bytes()[2:] == b"again"


def test_a_mount_whose_session_has_failed_stays_as_a_dead_one(lonely: LocalCluster, tmp_path: Path) -> None:
    """So its supervisor knows that nobody has unmounted it."""
    program = """
import errno, os, sys
from threefs_mount.main import main
read = os.readv
def fails(*words):
    if os.path.exists(sys.argv[-1] + ".fails"):
        raise OSError(errno.ENOMEM, "no memory for a request")
    return read(*words)
os.readv = fails
main()
"""
    point = tmp_path / "mnt"
    point.mkdir()
    command = [sys.executable, "-c", program, "--address", lonely.address, "--cache", "0", str(point)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(b"ready")
        try:
            (tmp_path / "mnt.fails").touch()
            with pytest.raises(OSError):
                os.listdir(point)
            assert process.wait() == 1 and mountpoints.is_dead(str(point))
        finally:
            mountpoints.unmount(str(point), lazy=True)


def test_a_signal_ends_a_program_that_waits(lonely: LocalCluster, tmp_path: Path) -> None:
    with Mount(lonely.address, tmp_path / "mnt", "--timeout", "1200", "--cache", "0") as root:
        (root / "a").write_bytes(b"content")
        lonely.meta.kill()
        for code in ("os.stat(path)", "open(path, 'rb')", "os.listdir(os.path.dirname(path))", "os.statvfs(path)"):
            command = f"import os, sys; path = sys.argv[1]; print('begun', flush=True); {code}"
            program = subprocess.Popen([sys.executable, "-c", command, str(root / "a")], stdout=subprocess.PIPE)
            assert program.stdout is not None and program.stdout.readline() == b"begun\n"
            time.sleep(0.3)  # now it most likely waits
            program.send_signal(signal.SIGTERM)
            assert program.wait() == -signal.SIGTERM
            program.stdout.close()
        lonely.meta.start()
        assert (root / "a").read_bytes() == b"content"


def test_a_killed_program_with_many_dirty_files_ends_although_no_service_answers(
    lonely: LocalCluster, tmp_path: Path
) -> None:
    """The kernel closes its files one after the other."""
    with Mount(lonely.address, tmp_path / "mnt", "--timeout", "5") as root:
        script = f"""
import sys
files = [open({str(root)!r} + f"/{{n}}", "wb", buffering=0) for n in range({DIRTY_FILES})]
print("open", flush=True)
sys.stdin.readline()
for file in files:
    file.write(b"held")
print("written", flush=True)
sys.stdin.readline()
"""
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdin is not None and program.stdout is not None
            assert program.stdout.readline() == b"open\n"
            lonely.kill()
            program.stdin.write(b"\n")
            program.stdin.flush()
            assert program.stdout.readline() == b"written\n"
            program.kill()
            program.wait(timeout=DIRTY_FILES * 5 / 2)
        for one in (lonely.manager, lonely.meta, *lonely.storage.values()):
            one.launch()
        for one in (lonely.manager, lonely.meta, *lonely.storage.values()):
            one.wait_ready()


def test_a_killed_program_has_its_lock_until_its_bytes_are_stored_or_lost(lonely: LocalCluster, tmp_path: Path) -> None:
    """Else they are stored over what the next holder of the lock has written."""
    # So long that the second bytes are not given up within the seconds in which the lock is looked at.
    mount, storage = Mount(lonely.address, tmp_path / "mnt", "--timeout", "10"), list(lonely.storage.values())
    with mount as root, Mount(lonely.address, tmp_path / "other") as there, ThreadPoolExecutor() as threads:
        (root / "a").write_bytes(b"before")
        script = f"""
import fcntl, os, sys
file = os.open({str(root / "a")!r}, os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
for line in sys.stdin:
    os.pwrite(file, line.strip().encode(), 0)
    print("written", flush=True)
"""
        command = [sys.executable, "-c", script]
        with (
            open(there / "a", "r+b", buffering=0) as theirs,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program,
        ):
            assert program.stdin is not None and program.stdout is not None
            assert program.stdout.readline() == b"locked\n"
            for one in storage:
                one.process.send_signal(signal.SIGSTOP)
            try:
                for data in (b"first\n", b"second\n"):
                    program.stdin.write(data)
                    program.stdin.flush()
                    assert program.stdout.readline() == b"written\n"
                    time.sleep(3)  # the mount has begun to send it
                while "writes could not be synced" not in mount.log.read_text():
                    time.sleep(0.1)
                program.kill()
                locking = threads.submit(fcntl.lockf, theirs, fcntl.LOCK_EX)
                time.sleep(2)
                assert not locking.done(), "the bytes are still to be sent"
            finally:
                for one in storage:
                    one.process.send_signal(signal.SIGCONT)
            locking.result()
            seen = theirs.read(6)
            time.sleep(3)
            assert os.pread(theirs.fileno(), 6, 0) == seen


def test_a_file_that_was_closed_without_an_answer_gives_its_room_back(lonely: LocalCluster, tmp_path: Path) -> None:
    """Its write session ends later, though the mount goes on to hold other files."""
    with Mount(lonely.address, tmp_path / "mnt", "--timeout", str(TIMEOUT_S)) as root:
        held = os.open(root / "held", os.O_RDWR | os.O_CREAT)
        file = os.open(root / "a", os.O_RDWR | os.O_CREAT)
        os.write(file, b"x" * (4 << 20))
        os.fsync(file)
        lonely.meta.kill()
        os.close(file)  # all is settled: the session ends in the background
        time.sleep(TIMEOUT_S + 2)
        lonely.meta.start()
        os.unlink(root / "a")
        deadline = time.monotonic() + 120
        while lonely.chunks():
            assert time.monotonic() < deadline, "the session lives as long as the mount"
            time.sleep(0.5)
        os.close(held)


@pytest.mark.parametrize("call", [fcntl.flock, fcntl.lockf])
def test_a_lock_of_a_file_that_was_closed_while_nobody_answered_is_free_afterwards(
    lonely: LocalCluster, tmp_path: Path, call: Callable[[int, int], None]
) -> None:
    """It stayed as long as the mount lived."""
    one = Mount(lonely.address, tmp_path / "one", "--timeout", str(TIMEOUT_S))
    with one as here, Mount(lonely.address, tmp_path / "other") as there:
        (here / "a").write_bytes(b"content")
        mine, theirs = os.open(here / "a", os.O_RDWR), os.open(there / "a", os.O_RDWR)
        call(mine, fcntl.LOCK_EX)
        lonely.meta.kill()
        with contextlib.suppress(OSError):
            os.close(mine)
        time.sleep(TIMEOUT_S + 1)
        lonely.meta.start()
        deadline = time.monotonic() + 60
        while True:
            try:
                call(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < deadline, "nobody has it, and nobody gets it"
                time.sleep(0.2)
        os.close(theirs)


def test_a_mount_ends_while_the_cluster_is_down(lonely: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(lonely.address, tmp_path / "mnt", "--timeout", str(TIMEOUT_S))
    root = mount.mount()
    (root / "a").write_bytes(b"content")
    lonely.kill()
    mount.umount()
    assert not os.path.ismount(root)
    programs = (lonely.manager, lonely.meta, *lonely.storage.values())
    for program in programs:
        program.launch()
    for program in programs:
        program.wait_ready()


def test_what_a_mount_wrote_before_it_was_killed_is_seen_when_its_lease_has_ended(
    lonely: LocalCluster, tmp_path: Path
) -> None:
    """It wrote within the old length, and nobody was told."""
    doomed, content = Mount(lonely.address, tmp_path / "doomed"), b"new!" * (1 << 20)
    with Mount(lonely.address, tmp_path / "mnt") as root, lonely.connect(noatime=True) as fs:
        (root / "a").write_bytes(b"old!" * (1 << 20))
        was = (root / "a").stat()
        for _ in range(2):
            assert (root / "a").read_bytes() == b"old!" * (1 << 20)  # which the kernel keeps
        file = os.open(doomed.mount() / "a", os.O_WRONLY)
        for offset in range(0, 4 << 20, 1 << 20):
            os.pwrite(file, content[offset : offset + (1 << 20)], offset)  # so much that it is sent at once
        while fs.read_file("/a") != content:  # on a busy machine some of it may still be on its way
            time.sleep(0.02)
        doomed.kill()  # a second later it would be settled
        with contextlib.suppress(OSError):
            os.close(file)
        subprocess.run(["umount", "--lazy", str(doomed.point)], check=True)
        deadline = time.monotonic() + 60
        while (root / "a").stat().st_mtime_ns == was.st_mtime_ns:
            assert time.monotonic() < deadline, "the end of the session changes the times"
            time.sleep(0.2)
        assert (root / "a").read_bytes() == content
