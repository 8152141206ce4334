"""A mount that was silent for longer than its lease: its locks are lost, and nothing that was written under them is
stored once somebody else has them (I18)."""

import contextlib
import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts
from threefs.errors import ThreefsError
from threefs.rpc.methods import RENEW_LEASE
from threefs.wire import meta_pb2 as pb

need_mounts()

pytestmark = pytest.mark.timeout(300)
MOST_S = 90.0  # a client's lease is 15 s at least


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", storage=2, replicas=2, targets_per_disk=4, lease_s=2.0) as running:
        yield running


def lock_when_free(file: int) -> None:
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            assert time.monotonic() - began < MOST_S, "the lock of a silent mount is never free"
            time.sleep(0.2)


def refused(call: object, *arguments: object) -> bool:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    return False


def test_a_program_that_lost_a_lock_gets_an_error_and_changes_nothing(lonely: LocalCluster, tmp_path: Path) -> None:
    one = Mount(lonely.address, tmp_path / "one")
    with one as here, Mount(lonely.address, tmp_path / "other") as there:
        (here / "a").write_bytes(b"0" * 16)
        mine = os.open(here / "a", os.O_RDWR)
        lockless = os.open(here / "b", os.O_RDWR | os.O_CREAT)
        fcntl.flock(mine, fcntl.LOCK_EX)
        os.pwrite(mine, b"first", 0)
        os.fsync(mine)
        os.pwrite(mine, b"held!", 0)  # the mount sends it a second later
        os.pwrite(lockless, b"kept", 0)
        os.kill(one.pid, signal.SIGSTOP)
        try:
            theirs = os.open(there / "a", os.O_RDWR)
            lock_when_free(theirs)
            assert os.pread(theirs, 16, 0) in (b"first" + b"0" * 11, b"held!" + b"0" * 11)
            os.pwrite(theirs, b"theirs", 0)
            os.fsync(theirs)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert refused(os.pwrite, mine, b"after the loss", 0)
        assert refused(os.fsync, mine) and refused(os.pread, mine, 16, 0)
        assert refused(os.ftruncate, mine, 0)
        assert refused(fcntl.flock, mine, fcntl.LOCK_SH | fcntl.LOCK_NB)
        time.sleep(3)
        assert os.pread(theirs, 16, 0) == (there / "a").read_bytes() == b"theirs" + b"0" * 10
        assert refused(os.close, mine)
        os.pwrite(lockless, b"!", 4)
        os.close(lockless)
        assert (there / "b").read_bytes() == b"kept!", "no lock was lost on it"
        os.close(theirs)
        again = os.open(here / "a", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX)
        assert os.pread(again, 6, 0) == b"theirs"
        os.pwrite(again, b"anew", 0)
        os.close(again)
        assert (there / "a").read_bytes()[:6] == b"anewrs"


def test_a_writer_that_holds_no_lock_goes_on(lonely: LocalCluster, tmp_path: Path) -> None:
    """The fence was raised because of somebody else."""
    one = Mount(lonely.address, tmp_path / "one")
    with one as here, Mount(lonely.address, tmp_path / "other") as there, lonely.connect() as fs:
        mine = os.open(here / "a", os.O_RDWR | os.O_CREAT)
        theirs = os.open(there / "a", os.O_RDWR)
        ours = fs.open("/a", "r+b")
        os.pwrite(theirs, b"before ", 0)
        os.fsync(theirs)
        fcntl.lockf(mine, fcntl.LOCK_EX)
        os.kill(one.pid, signal.SIGSTOP)
        try:
            locked = os.open(there / "a", os.O_RDWR)
            lock = fs.open("/a", "rb")
            began = time.monotonic()
            while True:
                try:
                    fcntl.lockf(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    assert time.monotonic() - began < MOST_S
                    time.sleep(0.2)
            os.pwrite(theirs, b"after ", 7)
            os.fsync(theirs)
            ours.seek(13)
            ours.write(b"and on")
            ours.flush()
            lock.close()
            os.close(locked)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert (there / "a").read_bytes() == b"before after and on"
        for file in (mine, theirs):
            refused(os.close, file)
        ours.close()


def test_a_lock_that_a_sleeping_mount_asks_for_ends_with_the_open_file(lonely: LocalCluster, tmp_path: Path) -> None:
    """It was granted while the mount noticed that an earlier one was lost, and was never unlocked."""
    one = Mount(lonely.address, tmp_path / "one")
    with one as here, Mount(lonely.address, tmp_path / "other") as there, ThreadPoolExecutor() as threads:
        (here / "a").write_bytes(b"")
        mine = os.open(here / "a", os.O_RDWR)
        fcntl.flock(mine, fcntl.LOCK_SH)
        os.kill(one.pid, signal.SIGSTOP)
        try:
            asking = threads.submit(refused, fcntl.flock, mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            theirs = os.open(there / "a", os.O_RDWR)
            lock_when_free(theirs)
            fcntl.flock(theirs, fcntl.LOCK_UN)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert asking.result()
        assert refused(os.close, mine)
        lock_when_free(theirs)
        os.close(theirs)


def test_what_a_sleeping_mount_had_not_sent(lonely: LocalCluster, tmp_path: Path) -> None:
    """It is stored, if the file is still there; of a removed file no chunk is left that nobody would ever free."""
    one = Mount(lonely.address, tmp_path / "one")
    with one as here, Mount(lonely.address, tmp_path / "other") as there, lonely.connect() as fs:
        gone, stays = (os.open(here / name, os.O_RDWR | os.O_CREAT) for name in ("gone", "stays"))
        appended = os.open(here / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.pwrite(gone, b"x" * (1 << 20), 0)
        for file in (gone, stays, appended):
            os.fsync(file)
        os.pwrite(gone, b"y" * (3 << 20), 0)
        os.pwrite(stays, b"kept", 0)
        os.write(appended, b"kept, too")
        os.kill(one.pid, signal.SIGSTOP)
        try:
            (there / "gone").unlink()
            began = time.monotonic()
            while lonely.chunks():
                assert time.monotonic() - began < MOST_S, "the file is not freed when the lease has ended"
                time.sleep(0.5)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        for call in (lambda: os.pwrite(gone, b"z", 0), lambda: os.pread(gone, 1, 0)):
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.ESTALE
        assert refused(os.fsync, gone)
        for file in (stays, appended):
            os.close(file)
        assert (there / "stays").read_bytes() == b"kept" and (there / "appended").read_bytes() == b"kept, too"
        with contextlib.suppress(OSError):
            os.close(gone)
        fs.remove_many(["/stays", "/appended"])
        began = time.monotonic()
        while lonely.chunks():
            assert time.monotonic() - began < MOST_S, "chunks of no file are left"
            time.sleep(0.5)


def test_a_python_program_gets_the_error_too(lonely: LocalCluster, tmp_path: Path) -> None:
    with lonely.connect() as fs, lonely.connect() as other:
        file = fs.open("/a", "w+b")
        file.lock()
        file.write(b"first")
        file.flush()
        file.write(b" held back")
        core = fs._async().context.lease
        request = pb.RenewLeaseRequest(client=core._client, end=core.number)
        fs._run(fs._context().meta.call(RENEW_LEASE, request, timeout_s=10.0))  # as if it had run out
        theirs = other.open("/a", "r+b")
        theirs.lock(wait_s=MOST_S)
        theirs.write(b"THEIRS")
        theirs.flush()
        for call in (file.flush, file.close):
            with pytest.raises(ThreefsError):
                call()
        theirs.seek(0)
        assert theirs.read() == b"THEIRS"
        theirs.close()
