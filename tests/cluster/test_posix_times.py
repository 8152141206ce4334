"""Which times an operation changes: the same as on a local file system, for every operation there is."""

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from threefs_client import Allocation, FileSystem
from threefs_client.metadata.atime_reporter import PAUSE_S

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

Changed = set[tuple[str, str]]
WATCHED = ("d", "d/a", "d/b", "d/sub", "e", "e/c")
#: Longer than the grain of a local file system's clock.
_GRAIN_S = 0.03


class Local:
    def __init__(self, top: Path) -> None:
        self.top = top

    def __call__(self, name: str) -> str:
        return str(self.top / name)

    def times(self, name: str) -> tuple[int, int] | None:
        try:
            found = os.lstat(self(name))
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns

    def write(self, name: str, offset: int, data: bytes) -> None:
        with open(self(name), "rb+") as file:
            file.seek(offset)
            file.write(data)

    def allocate(self, name: str, length: int) -> None:
        with open(self(name), "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, length)

    def mkdir(self, name: str) -> None:
        os.mkdir(self(name))

    def create(self, name: str) -> None:
        open(self(name), "xb").close()

    def open_again(self, name: str) -> None:
        open(self(name), "ab").close()

    def empty(self, name: str) -> None:
        open(self(name), "wb").close()

    def truncate(self, name: str, length: int) -> None:
        os.truncate(self(name), length)

    def unlink(self, name: str) -> None:
        os.unlink(self(name))

    def rmdir(self, name: str) -> None:
        os.rmdir(self(name))

    def rename(self, one: str, other: str) -> None:
        os.rename(self(one), self(other))

    def link(self, one: str, other: str) -> None:
        os.link(self(one), self(other))

    def symlink(self, target: str, name: str) -> None:
        os.symlink(target, self(name))

    def chmod(self, name: str, mode: int) -> None:
        os.chmod(self(name), mode)

    def chown(self, name: str) -> None:
        os.chown(self(name), os.getuid(), os.getgid())

    def utime(self, name: str) -> None:
        os.utime(self(name), ns=(5, 7))

    def setxattr(self, name: str) -> None:
        os.setxattr(self(name), "user.a", b"x")

    def removexattr(self, name: str) -> None:
        os.removexattr(self(name), "user.here")

    def read(self, name: str) -> None:
        Path(self(name)).read_bytes()


class Remote:
    def __init__(self, fs: FileSystem, top: str) -> None:
        self.fs = fs
        self.top = top

    def __call__(self, name: str) -> str:
        return f"{self.top}/{name}"

    def times(self, name: str) -> tuple[int, int] | None:
        try:
            found = self.fs.stat(self(name), follow=False)
        except FileNotFoundError:
            return None
        return found.mtime_ns, found.ctime_ns

    def write(self, name: str, offset: int, data: bytes) -> None:
        with self.fs.open(self(name), "rb+") as file:
            file.seek(offset)
            file.write(data)

    def allocate(self, name: str, length: int) -> None:
        with self.fs.open(self(name), "rb+") as file:
            file.allocate(0, length, Allocation.RESERVE)

    def mkdir(self, name: str) -> None:
        self.fs.mkdir(self(name))

    def create(self, name: str) -> None:
        self.fs.open(self(name), "xb").close()

    def open_again(self, name: str) -> None:
        self.fs.open(self(name), "ab").close()

    def empty(self, name: str) -> None:
        self.fs.open(self(name), "wb").close()

    def truncate(self, name: str, length: int) -> None:
        self.fs.truncate(self(name), length)

    def unlink(self, name: str) -> None:
        self.fs.unlink(self(name))

    def rmdir(self, name: str) -> None:
        self.fs.rmdir(self(name))

    def rename(self, one: str, other: str) -> None:
        self.fs.rename(self(one), self(other))

    def link(self, one: str, other: str) -> None:
        self.fs.hard_link(self(one), self(other))

    def symlink(self, target: str, name: str) -> None:
        self.fs.symlink(target, self(name))

    def chmod(self, name: str, mode: int) -> None:
        self.fs.chmod(self(name), mode)

    def chown(self, name: str) -> None:
        self.fs.chown(self(name), os.getuid(), os.getgid())

    def utime(self, name: str) -> None:
        self.fs.utime(self(name), 5, 7)

    def setxattr(self, name: str) -> None:
        self.fs.setxattr(self(name), "user.a", b"x")

    def removexattr(self, name: str) -> None:
        self.fs.removexattr(self(name), "user.here")

    def read(self, name: str) -> None:
        self.fs.read_file(self(name))


Side = Local | Remote
STEPS: dict[str, Callable[[Side], None]] = {
    "read": lambda on: on.read("d/a"),
    "write": lambda on: on.write("d/a", 0, b"new"),
    "write behind the end": lambda on: on.write("d/a", 100, b"new"),
    "write nothing": lambda on: on.write("d/a", 0, b""),
    "allocate": lambda on: on.allocate("d/a", 1000),
    "create": lambda on: on.create("d/new"),
    "open what is there": lambda on: on.open_again("d/a"),
    "open and empty": lambda on: on.empty("d/a"),
    "truncate to shorter": lambda on: on.truncate("d/a", 1),
    "truncate to longer": lambda on: on.truncate("d/a", 50),
    "truncate to the same": lambda on: on.truncate("d/a", 3),
    "mkdir": lambda on: on.mkdir("d/new"),
    "unlink": lambda on: on.unlink("d/a"),
    "unlink one of two names": lambda on: (on.link("d/a", "d/second"), on.unlink("d/second"))[1],
    "rmdir": lambda on: on.rmdir("d/sub"),
    "rename": lambda on: on.rename("d/a", "d/renamed"),
    "rename over another": lambda on: on.rename("d/a", "d/b"),
    "rename elsewhere": lambda on: on.rename("d/a", "e/a"),
    "rename of a directory": lambda on: on.rename("d/sub", "e/sub"),
    "rename onto itself": lambda on: on.rename("d/a", "d/a"),
    "link": lambda on: on.link("d/a", "e/linked"),
    "symlink": lambda on: on.symlink("a", "d/symlink"),
    "chmod": lambda on: on.chmod("d/a", 0o640),
    "chmod to the same": lambda on: on.chmod("d/a", 0o644),
    "chmod of a directory": lambda on: on.chmod("d", 0o700),
    "chown": lambda on: on.chown("d/a"),
    "utime": lambda on: on.utime("d/a"),
    "utime of a directory": lambda on: on.utime("d"),
    "setxattr": lambda on: on.setxattr("d/a"),
    "removexattr": lambda on: on.removexattr("d/a"),
}


def prepare(on: Side) -> None:
    for name in ("d", "d/sub", "e"):
        on.mkdir(name)
    for name in ("d/a", "d/b", "e/c"):
        on.create(name)
        on.write(name, 0, b"abc")
        on.chmod(name, 0o644)


def changed(on: Side, step: Callable[[Side], None]) -> Changed:
    before = {name: on.times(name) for name in WATCHED}
    time.sleep(_GRAIN_S)
    step(on)
    found: Changed = set()
    for name, old in before.items():
        new = on.times(name)
        if old is None or new is None:
            continue
        found |= {(name, kind) for kind, a, b in zip(("mtime", "ctime"), old, new, strict=True) if a != b}
    return found


@pytest.mark.parametrize("step", STEPS)
def test_the_same_times_change_as_on_a_local_file_system(fs: FileSystem, tmp_path: Path, step: str) -> None:
    top = f"/times/{uuid.uuid4().hex}"
    fs.mkdir(top, parents=True)
    sides: list[Side] = [Local(tmp_path), Remote(fs, top)]
    results = []
    for on in sides:
        prepare(on)
        if step == "removexattr":
            target = on("d/a")
            try:
                os.setxattr(target, "user.here", b"x") if isinstance(on, Local) else fs.setxattr(
                    target, "user.here", b"x"
                )
            except OSError as error:
                pytest.skip(f"no extended attributes here: {error}")
        results.append(changed(on, STEPS[step]))
    assert results[1] == results[0]


def test_an_access_time_that_is_set_stays_although_the_file_was_read_before(fs: FileSystem) -> None:
    """As with `tar --atime-preserve`: reads are reported a moment later."""
    name = f"/{uuid.uuid4()}"
    fs.write_file(name, b"content")
    assert fs.read_file(name) == b"content"
    fs.utime(name, 5, 7)
    time.sleep(PAUSE_S + 0.5)
    assert fs.stat(name).atime_ns == 5


def test_the_same_on_a_mount(fs: FileSystem, cluster: LocalCluster, tmp_path: Path) -> None:
    need_mounts()
    name = str(uuid.uuid4())
    fs.write_file(f"/{name}", b"content")
    with Mount(cluster.address, tmp_path / "mnt") as root:
        assert (root / name).read_bytes() == b"content"
        os.utime(root / name, ns=(5, 7))
        time.sleep(PAUSE_S + 0.5)
        assert (root / name).stat().st_atime_ns == 5
