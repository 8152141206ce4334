"""Other people's programs live on a mount: version control, a database, archives, memory maps."""

import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.fs_drivers import KernelFile, outcome
from tests.harness.mounts import Mount, need_mounts

need_mounts()

_FILE_BYTES = 300_000
_ALLOCATIONS = (0, 1, 3, 16, 17)  # room, room behind the end, a hole, zeros, zeros without a new length
_WRITERS, _ROWS = 3, 20
_WRITER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=1000)
for row in range(int(sys.argv[3])):
    with base:
        base.execute("insert into rows values (?, ?)", (sys.argv[2], row))
        base.execute("update counts set total = total + 1")
base.close()
"""


@pytest.fixture(scope="module")
def mounted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Mount(cluster.address, tmp_path_factory.mktemp("programs") / "mnt") as root:
        yield root


def run(*command: str, cwd: Path) -> str:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **names, "HOME": str(cwd)}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git(mounted: Path) -> None:
    top = mounted / "git"
    top.mkdir()
    run("git", "init", "-q", "origin", cwd=top)
    origin = top / "origin"
    for number in range(3):
        (origin / "folder").mkdir(exist_ok=True)
        for name in range(5):
            (origin / "folder" / f"{number}-{name}").write_text(f"{number} {name}\n" * 500)
        run("git", "add", ".", cwd=origin)
        run("git", "commit", "-q", "-m", f"commit {number}", cwd=origin)
    run("git", "clone", "-q", "--no-local", str(origin), "clone", cwd=top)
    run("git", "gc", "-q", "--aggressive", "--prune=now", cwd=top / "clone")
    run("git", "fsck", "--full", "--strict", cwd=top / "clone")
    assert run("git", "status", "--porcelain", cwd=top / "clone") == ""
    assert run("git", "log", "--oneline", cwd=top / "clone").count("\n") == 3


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_with_several_processes(mounted: Path, journal: str) -> None:
    path = mounted / f"{journal}.db"
    base = sqlite3.connect(path)
    assert base.execute(f"pragma journal_mode={journal}").fetchone() == (journal,)
    base.executescript("create table rows (writer, row); create table counts (total); insert into counts values (0);")
    base.close()
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(number), str(_ROWS)])
        for number in range(_WRITERS)
    ]
    assert [writer.wait() for writer in writers] == [0] * _WRITERS
    base = sqlite3.connect(path)
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    assert base.execute("select total from counts").fetchone() == (_WRITERS * _ROWS,)
    assert base.execute("select count(distinct writer * 1000 + row) from rows").fetchone() == (_WRITERS * _ROWS,)
    base.close()


@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")
def test_tar(mounted: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(5):
        directory = source / f"{number}" / "below"
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(os.urandom(1000 * number))
        (directory / "hard").hardlink_to(directory / "file")
        (directory / "soft").symlink_to("../below/file")
        os.utime(directory / "file", ns=(10**18, 10**18 + number))
        os.chmod(directory, 0o750)
    run("tar", "-cf", str(mounted / "a.tar"), ".", cwd=source)
    (mounted / "unpacked").mkdir()
    run("tar", "-xpf", "../a.tar", cwd=mounted / "unpacked")
    run("tar", "-df", str(mounted / "a.tar"), cwd=mounted / "unpacked")  # content, modes, owners, times, links


def test_random_reads_writes_cuts_holes_copies_and_maps(mounted: Path, tmp_path: Path) -> None:
    """Each step on the mount and on a local file, open twice; what is mapped must be what is read."""
    draw = random.Random(7)
    paths = mounted / "random", tmp_path / "random"
    trees = [[KernelFile(os.open(path, os.O_RDWR | os.O_CREAT, 0o644)) for _ in range(2)] for path in paths]
    kinds = ("write", "write", "write", "read", "read", "cut", "map", "map", "sync", "copy", "copy", "allocate", "open")
    try:
        for step in range(400):
            offset, size, at = draw.randrange(_FILE_BYTES), draw.randrange(1, 70_000), draw.randrange(_FILE_BYTES)
            data, kind, mode = draw.randbytes(size), draw.choice(kinds), draw.choice(_ALLOCATIONS)
            if draw.random() < 0.5:
                for files in trees:
                    files.reverse()
            seen = [outcome(partial(_step, files, kind, offset, data, at, mode)) for files in trees]
            assert seen[0] == seen[1], f"step {step}: {kind} of {size} at {offset}, {at}, mode {mode}"
            if kind == "open":
                trees[0][0].close()
                trees[0][0] = KernelFile(os.open(paths[0], os.O_RDWR))
    finally:
        for file in (*trees[0], *trees[1]):
            file.close()
    assert paths[0].read_bytes() == paths[1].read_bytes()


def _step(files: list[KernelFile], kind: str, offset: int, data: bytes, at: int, mode: int) -> object:
    file = files[0]
    if kind == "write":
        return file.pwrite(offset, data)
    if kind == "read":
        return file.pread(offset, len(data))
    if kind == "copy":
        return file.copy_to(files[1], offset, at, len(data))
    if kind == "cut":
        file.truncate(offset)
    elif kind == "sync":
        file.sync()
    elif kind == "allocate":
        file.allocate(offset, len(data), mode)
    elif kind == "map" and (length := os.fstat(file.number).st_size):
        with mmap.mmap(file.number, length) as mapped:
            start = offset % length
            part = data[: length - start]
            mapped[start : start + len(part)] = part
            if at % 2:  # else the kernel writes it when it likes
                mapped.flush()
            return mapped[:]
    return os.fstat(file.number).st_size


@pytest.mark.skipif(
    "\toverlay\n" not in Path("/proc/filesystems").read_text(), reason="this kernel has no overlay file system"
)
def test_the_upper_layer_of_an_overlay(mounted: Path) -> None:
    """As containers have it: what is changed in a tree below lands here."""
    lower, upper, work, merged = (mounted / "overlay" / name for name in ("lower", "upper", "work", "merged"))
    for directory in (lower / "kept", lower / "replaced", upper, work, merged):
        directory.mkdir(parents=True)
    (lower / "file").write_text("below")
    (lower / "replaced" / "gone").write_text("below")
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    run("mount", "-t", "overlay", "overlay", "-o", options, str(merged), cwd=mounted)
    try:
        with open(merged / "file", "a") as file:
            file.write(", above")
        (merged / "file").rename(merged / "moved")
        shutil.rmtree(merged / "replaced")
        (merged / "replaced").mkdir()
        assert (merged / "moved").read_text() == "below, above"
        assert sorted(path.name for path in merged.iterdir()) == ["kept", "moved", "replaced"]
        assert list((merged / "replaced").iterdir()) == []
    finally:
        run("umount", str(merged), cwd=mounted)
    assert (lower / "file").read_text() == "below" and (lower / "replaced" / "gone").exists()
    assert (upper / "file").is_char_device() and (upper / "moved").read_text() == "below, above"
