"""The mounts of threefs on this machine, as the kernel lists them."""

import errno
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from threefs.errors import InvalidArgument, NotFound, Unavailable

TYPE = "fuse.threefs"
_PROBE_TIMEOUT_S = 5.0
_USER = re.compile(rb"\buser_id=([0-9]+)")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    source: str
    device: str  # "major:minor"
    uid: int  # of the user who mounted it, whose process serves it


def parse(mountinfo: bytes) -> list[Mount]:
    """The mounts of threefs in the text of a `/proc/PID/mountinfo`, in the order in which they were mounted."""
    found = []
    for line in mountinfo.splitlines():
        front, _, back = line.partition(b" - ")
        fields, kind = front.split(b" "), back.split(b" ")
        if len(fields) > 4 and len(kind) > 2 and kind[0].decode() == TYPE:
            user = _USER.search(kind[2])
            found.append(Mount(_plain(fields[4]), _plain(kind[1]), fields[2].decode(), int(user[1]) if user else 0))
    return found


def _plain(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def mounts() -> list[Mount]:
    return parse(Path("/proc/self/mountinfo").read_bytes())


def find(point: str) -> Mount | None:
    """The uppermost mount of threefs at this path."""
    wanted = kernel_path(point)
    return next((mount for mount in reversed(mounts()) if mount.point == wanted), None)


def kernel_path(point: str) -> str:
    """The path as the kernel knows it. It does not touch the mount point itself, because a mount there may hang."""
    above, name = os.path.split(os.path.abspath(point))
    return os.path.join(os.path.realpath(above), name) if name else above


def check(point: str) -> str:
    """The absolute path of a directory that can be mounted on; a dead mount may be there. Raises InvalidArgument."""
    path = kernel_path(point)
    if is_dead(path):
        return path
    if find(path) is not None:
        raise InvalidArgument(f"threefs is mounted at {path} already; `threefs umount {path}` unmounts it")
    if not os.path.isdir(path):
        raise InvalidArgument(f"{path} is not a directory")
    return os.path.realpath(path)


def is_dead(point: str) -> bool:
    """Whether threefs is mounted there, and the process behind it has ended. A mount that only hangs is not dead."""
    return _probed(point) == errno.ENOTCONN


def answers(point: str) -> bool:
    """Whether threefs is mounted there, and its process lives and answers."""
    return _probed(point) == 0


def _probed(point: str) -> int | None:
    """What a call of the mount fails with; 0 if it answers; None if it hangs, or if threefs is not mounted there."""
    mount = find(point)
    if mount is None:
        return None
    # The kernel answers a `stat` from its cache as long as `--cache` lasts, also when the process has ended.
    probe = "import os, sys\ntry: os.statvfs(sys.argv[1])\nexcept OSError as error: sys.exit(error.errno)"
    try:  # in a process of its own: it may hang
        status = subprocess.run(
            [sys.executable, "-I", "-S", "-c", probe, mount.point], capture_output=True, timeout=_PROBE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return None
    return status.returncode


def clear_dead(point: str) -> bool:
    """Detach dead mounts of threefs from that path. Returns whether there were any. Raises what `unmount` raises."""
    found = False
    while is_dead(point):
        unmount(point, lazy=True)
        found = True
    return found


def unmount(point: str, *, lazy: bool = False) -> None:
    """Raises NotFound when threefs is not mounted there, Unavailable when the mount is in use."""
    mount = find(point)
    if mount is None:
        raise NotFound(f"threefs is not mounted at {kernel_path(point)}")
    if os.geteuid() == 0:
        command = ["umount", "--no-canonicalize", *(["--lazy"] if lazy else []), mount.point]
    else:
        command = ["fusermount3", "-u", *(["-z"] if lazy else []), mount.point]
    try:
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Unavailable(f"the program {command[0]} is not installed") from None
    if result.returncode:
        hint = "" if lazy else "; --lazy detaches it now, and ends it when no program uses it any more"
        raise Unavailable(f"{mount.point} was not unmounted: {result.stderr.strip() or result.returncode}{hint}")


def servers(point: str, uid: int) -> list[int]:
    """The ids of the processes that serve the uppermost mount of a user at this path: one, or it and its supervisor.

    Of several that were started for this path, the newest: a mount that was detached keeps its process until its last
    user has gone.
    """
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (place := _server_place(folder, point, uid)) is not None:
            found[int(folder.name)] = place
    started = {pid: ticks for pid, (parent, ticks) in found.items() if parent not in found}
    if not started:
        return []
    newest = max(started, key=lambda pid: (started[pid], pid))
    return [pid for pid, (parent, _) in found.items() if newest in (pid, parent)]


def _server_place(folder: Path, point: str, uid: int) -> tuple[int, int] | None:
    """(parent, start time in ticks) of a process of this user that serves, or has served, a mount at this path."""
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        if words[1:3] != [b"-m", b"threefs_mount"] or words[-2:] != [os.fsencode(point), b""]:
            return None
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()  # the name before it may have anything
        return (int(fields[1]), int(fields[19])) if folder.stat().st_uid == uid else None
    except OSError:  # it has ended
        return None
