"""Limits of bytes hold for programs on a mount, with a bounded excess."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

need_mounts()

MIB = 1 << 20
LIMIT = 8 * MIB


@pytest.fixture(scope="module")
def root(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Mount(cluster.address, tmp_path_factory.mktemp("quotas") / "mnt") as mounted:
        yield mounted


def limited(fs: FileSystem, root: Path, name: str) -> Path:
    fs.mkdir(f"/quota-{name}")
    fs.quotas.set(f"/quota-{name}", limit_bytes=LIMIT)
    return root / f"quota-{name}"


def test_small_files_end_at_the_limit(fs: FileSystem, root: Path) -> None:
    """Usage is a sum that is some two seconds old: a program that writes one file after the other meets it soon."""
    top = limited(fs, root, "small")
    with pytest.raises(OSError) as caught:
        for number in range(1000):
            with open(top / str(number), "wb") as file:
                file.write(b"x" * MIB)
    assert caught.value.errno == errno.EDQUOT
    assert LIMIT <= fs.usage("/quota-small").length <= LIMIT + 512 * MIB


def test_one_file_that_grows_ends_at_the_limit(fs: FileSystem, root: Path) -> None:
    piece, written = b"x" * MIB, 0
    with open(limited(fs, root, "large") / "a", "w+b", buffering=0) as opened:
        file = opened.fileno()
        with pytest.raises(OSError) as caught:
            while written < 1000 * MIB:
                written += os.pwrite(file, piece, written)
        assert caught.value.errno == errno.EDQUOT, caught.value
        assert LIMIT <= written <= LIMIT + 512 * MIB
        os.pwrite(file, b"y" * MIB, 0)  # what is there may be written over
        os.fsync(file)
        os.ftruncate(file, 0)
