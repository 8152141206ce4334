"""What takes set-user-id and set-group-id away from a file: on a mount the same as in a local directory."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.children import in_child
from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts

need_mounts()

OWNER, GROUP, OTHER_GROUP = 1001, 1001, 1002
MODES = (0o644, 0o4666, 0o6777, 0o2666, 0o2676, 0o6666)
WHO = {  # user, group, more groups
    "root": (0, 0, []),
    "owner": (OWNER, GROUP, [OTHER_GROUP]),
    "owner outside of the group": (OWNER, 1003, []),
    "member": (1005, 1006, [GROUP]),
    "other": (1007, 1007, []),
}
NOBODY = "chown to nobody"


def write(name: str) -> None:
    with open(name, "ab", buffering=0) as file:
        file.write(b"x")


def allocate(name: str) -> None:
    with open(name, "rb+", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 10)


def write_and_chmod(name: str) -> None:
    with open(name, "rb+", buffering=0) as file:
        file.write(b"x")
        os.fchmod(file.fileno(), 0o6755)


CALLS: dict[str, Callable[[str], object]] = {
    NOBODY: lambda name: os.chown(name, -1, -1),
    "chown to the same": lambda name: os.chown(name, OWNER, -1),
    "chown to another group": lambda name: os.chown(name, -1, OTHER_GROUP),
    "write": write,
    "write, then set them": write_and_chmod,
    "truncate": lambda name: os.truncate(name, 0),
    "open to truncate": lambda name: os.close(os.open(name, os.O_WRONLY | os.O_TRUNC)),
    "allocate": allocate,
}


@pytest.fixture(scope="module")
def mounted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Mount(cluster.address, tmp_path_factory.mktemp("privileges") / "mnt") as point:
        yield point


def outcome(directory: Path, mode: int, who: str, call: str) -> tuple[int, int, int]:
    """(errno, mode, group) after the call."""
    path = directory / "file"
    path.write_bytes(b"abc")
    os.chown(path, OWNER, GROUP)
    path.chmod(mode)
    user, group, more = WHO[who]

    def work() -> None:
        os.chdir(directory)  # while that is permitted
        os.setgroups(more)
        os.setgid(group)
        os.setuid(user)
        try:
            CALLS[call](path.name)
        except OSError as error:
            os._exit(error.errno or 255)

    code = in_child(work)
    found = path.stat()
    path.unlink()
    return code, found.st_mode & 0o7777, found.st_gid


@pytest.mark.parametrize("who", WHO)
def test_privileges_end_as_in_a_local_directory(mounted: Path, tmp_path: Path, who: str) -> None:
    local, remote = tmp_path / "local", mounted / who
    for place in (local, remote):
        place.mkdir()
        place.chmod(0o755)
    for mode in MODES:
        for call in CALLS:
            # Not all local file systems take privileges away for fallocate(2): those that do treat it as a write.
            expected = outcome(local, mode, who, "write" if call == "allocate" else call)
            got = outcome(remote, mode, who, call)
            if call == NOBODY and expected[0] == errno.EPERM:
                # The kernel asks the same before fallocate(2), which who may write may do (docs/posix.md).
                assert got == outcome(local, mode, who, "write")
            else:
                assert got == expected, f"{call} of a file with mode {mode:o}"


def test_privileges_are_not_dropped_from_files_that_the_user_may_not_write(mounted: Path) -> None:
    assert outcome(mounted, 0o6755, "other", NOBODY) == (errno.EPERM, 0o6755, GROUP)
    assert outcome(mounted, 0o755, "other", NOBODY) == (0, 0o755, GROUP)
