"""Clients that hold files, and clients that die, as real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment

MIB = 1 << 20
WRITER = """
import sys, threefs
fs = threefs.connect(sys.argv[1], write_buffer_bytes=1 << 20)
file = fs.open("/unfinished", "wb", chunk_bytes=1 << 20)
file.write(b"x" * (3 << 20))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, lease_s=5.0) as running:
        yield running


def eventually(is_true: Callable[[], bool]) -> None:
    for _ in range(900):
        if is_true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in a minute and a half")


@pytest.mark.timeout(300)
def test_what_readers_and_writers_hold(cluster: LocalCluster) -> None:
    """In one test, since each part waits for a lease to run out."""
    command = [sys.executable, "-c", WRITER, cluster.address]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    with cluster.connect() as fs, cluster.connect() as other:
        content = os.urandom(2 * MIB)
        fs.write_file("/read", content)
        fs.write_file("/closed", content)
        fs.write_file("/slow", b"")
        reader, slow = fs.open("/read", "rb"), fs.open("/slow", "wb")
        slow.write(b"before ")
        other.unlink("/read")
        other.unlink("/closed")
        assert writer.stdout is not None and writer.stdout.readline() == b"written\n"
        writer.kill()
        writer.wait()
        eventually(lambda: other.stat("/unfinished").length == 3 * MIB)
        eventually(lambda: cluster.chunks() == 3 * (2 + 3))
        assert reader.read() == content, "removed long ago, and still open here"
        slow.write(b"after")
        slow.close()
        assert other.read_file("/slow") == b"before after", "a living client keeps its session"
        reader.close()
        eventually(lambda: cluster.chunks() == 3 * (3 + 1))
    for pipe in (writer.stdin, writer.stdout):
        assert pipe is not None
        pipe.close()
