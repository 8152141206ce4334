"""Where threefs is mounted on this machine, as the kernel tells it."""

import errno
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from threefs.errors import InvalidArgument, NotFound, Unavailable

TYPE = "fuse.threefs"
_LOOK_S = 5.0
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    source: str
    device: str  # "major:minor"


def parse(mountinfo: bytes) -> list[Mount]:
    """The mounts of threefs in the text of a `/proc/PID/mountinfo`, in the order in which they were made."""
    found = []
    for line in mountinfo.splitlines():
        front, _, back = line.partition(b" - ")
        fields, kind = front.split(b" "), back.split(b" ")
        if len(fields) > 4 and len(kind) > 1 and kind[0].decode() == TYPE:
            found.append(Mount(_plain(fields[4]), _plain(kind[1]), fields[2].decode()))
    return found


def _plain(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def mounts() -> list[Mount]:
    return parse(Path("/proc/self/mountinfo").read_bytes())


def find(point: str) -> Mount | None:
    """The uppermost mount of threefs at this place."""
    wanted = place_of(point)
    return next((mount for mount in reversed(mounts()) if mount.point == wanted), None)


def place_of(point: str) -> str:
    """The name under which the kernel knows the place. It asks nothing of what may be mounted there: that may hang."""
    above, name = os.path.split(os.path.abspath(point))
    return os.path.join(os.path.realpath(above), name) if name else above


def check(point: str) -> str:
    """The absolute name of a directory that can be mounted on, also behind a dead mount. Raises InvalidArgument."""
    place = place_of(point)
    if is_dead(place):
        return place
    if find(place) is not None:
        raise InvalidArgument(f"threefs is mounted at {place} already; `threefs umount {place}` ends that")
    if not os.path.isdir(place):
        raise InvalidArgument(f"{place} is not a directory")
    return os.path.realpath(place)


def is_dead(point: str) -> bool:
    """Whether threefs is mounted there, and the process behind it has ended. One that only hangs is not dead."""
    mount = find(point)
    if mount is None:
        return False
    look = "import os, sys\ntry: os.stat(sys.argv[1])\nexcept OSError as error: sys.exit(error.errno)"
    try:  # in a process of its own: it may hang
        status = subprocess.run(
            [sys.executable, "-I", "-S", "-c", look, mount.point], capture_output=True, timeout=_LOOK_S
        )
    except subprocess.TimeoutExpired:
        return False
    return status.returncode == errno.ENOTCONN


def clear_dead(point: str) -> bool:
    """Detach dead mounts of threefs from that place; whether there were any. Raises what `unmount` raises."""
    found = False
    while is_dead(point):
        unmount(point, lazy=True)
        found = True
    return found


def unmount(point: str, *, lazy: bool = False) -> None:
    """Raises NotFound when threefs is not mounted there, Unavailable when the mount is in use."""
    mount = find(point)
    if mount is None:
        raise NotFound(f"threefs is not mounted at {place_of(point)}")
    if os.geteuid() == 0:
        command = ["umount", "--no-canonicalize", *(["--lazy"] if lazy else []), mount.point]
    else:
        command = ["fusermount3", "-u", *(["-z"] if lazy else []), mount.point]
    try:
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Unavailable(f"the program {command[0]} is not installed") from None
    if result.returncode:
        hint = "" if lazy else "; --lazy detaches it now, and ends it when nobody uses it any more"
        raise Unavailable(f"{mount.point} was not unmounted: {result.stderr.strip() or result.returncode}{hint}")


def servers(point: str) -> list[int]:
    """The processes that serve a mount at this place."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"threefs_mount" in words and os.fsencode(point) in words:
            found.append(int(folder.name))
    return found
