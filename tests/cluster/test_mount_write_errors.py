"""A mount that cannot store what programs have written: who is told of it, and who is not."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

need_mounts()

SYNC = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
try:
    os.fsync(file)
except OSError as error:
    print("told")
else:
    print("not told")
"""


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", storage=2, replicas=2, targets_per_disk=2, lease_s=2.0) as running:
        yield running


@pytest.fixture
def mount(lonely: LocalCluster, tmp_path: Path) -> Iterator[Mount]:
    """Its timeout is longer than an answer takes on a busy machine: calls that storage answers again must not fail."""
    mount = Mount(lonely.address, tmp_path / "mnt", "--timeout", "6")
    with mount:
        yield mount


@contextmanager
def without_storage(cluster: LocalCluster) -> Iterator[None]:
    for program in cluster.storage.values():
        program.kill()
    try:
        yield
    finally:
        for program in cluster.storage.values():
            program.start()


def told(call: object, *arguments: object) -> bool:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        assert error.errno in (errno.EIO, errno.ETIMEDOUT)
        return True
    return False


def in_child(file: int) -> bool:
    """Whether a forked child that closes what it has inherited is told."""
    child = os.fork()
    if not child:
        os._exit(told(os.close, file))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def synced_elsewhere(path: Path) -> str:
    """By another program, which has only read it. (It closes what it has inherited from this one.)"""
    return subprocess.run([sys.executable, "-c", SYNC, path], capture_output=True, text=True).stdout.strip()


def test_each_handle_reports_a_lost_write_once(lonely: LocalCluster, mount: Mount) -> None:
    path = mount.point / "a"
    path.write_bytes(b"old content")
    writer, other, reader = (os.open(path, flags) for flags in (os.O_RDWR, os.O_RDWR, os.O_RDONLY))
    locker = os.open(path, os.O_RDWR)
    fcntl.flock(locker, fcntl.LOCK_EX)
    with without_storage(lonely):
        os.pwrite(writer, b"new", 0)
        while "writes could not be synced" not in mount.log.read_text():
            time.sleep(0.1)
        assert in_child(writer)
        fcntl.flock(locker, fcntl.LOCK_UN)
    assert os.pread(reader, 100, 0) == b"old content", "what is lost is not shown as if it were there"
    assert synced_elsewhere(path) == "told", "no fsync has told of it yet"
    assert synced_elsewhere(path) == "not told", "it was opened after that"
    assert told(os.fsync, reader) and not told(os.fsync, reader)
    assert told(os.close, os.dup(writer))
    assert told(os.fsync, writer) and not told(os.fsync, writer)
    os.pwrite(writer, b"NEW", 0)
    assert not told(os.fsync, writer) and not told(os.close, writer)
    assert told(os.close, other), "closing tells it, too"
    assert told(os.fsync, locker)
    for file in (reader, locker):
        os.close(file)
    assert path.read_bytes() == b"NEW content"


def test_what_an_inherited_descriptor_closes_is_stored_and_goes_on(mount: Mount) -> None:
    """FLUSH comes for each close of a descriptor, RELEASE once, for the last."""
    path = mount.point / "a"
    writer = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(writer, b"parent ", 0)
    assert not in_child(writer)
    assert path.read_bytes() == b"parent "
    child = os.fork()
    if not child:
        os.pwrite(writer, b"child", 7)
        os._exit(0)
    os.waitpid(child, 0)
    assert path.read_bytes() == b"parent child"
    os.pwrite(writer, b"!", 12)
    os.fsync(writer)
    copy = os.dup(writer)
    os.close(writer)
    os.pwrite(copy, b"!", 13)
    os.close(copy)
    assert path.read_bytes() == b"parent child!!"
