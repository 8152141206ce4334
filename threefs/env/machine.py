"""Measurements of a machine for a person who sets it up: its clock, its disks, its ports."""

import contextlib
import ctypes
import errno
import os
import platform
import re
import resource
import shutil
import socket
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from threefs.env import ports

_SYNCS = 64
_BLOCK = 4096
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")  # blanks in a mount point
#: Of adjtimex(2): the answer of a clock that nothing keeps in step.
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class FileSystemFacts:
    """The file system that a directory lies on."""

    kind: str  # "ext4", "tmpfs", ...; empty: not known
    mount_point: str
    options: frozenset[str]
    capacity_bytes: int
    free_bytes: int  # for this user


@dataclass(frozen=True, slots=True)
class SyncFacts:
    """How a disk takes small writes that are synced one by one."""

    median_s: float
    slowest_s: float
    direct: bool  # O_DIRECT works there


@dataclass(frozen=True, slots=True)
class ClockFacts:
    suspended_s: float  # since the machine was started
    in_step: bool | None  # something such as NTP keeps the wall clock right; None: it cannot be asked


def kernel_version() -> tuple[int, int] | None:
    """None on another system than Linux."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(found[1]), int(found[2])) if platform.system() == "Linux" and found else None


def descriptor_limit() -> int | None:
    """The hard limit of open files, up to which a service raises its own; None: there is none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def clock() -> ClockFacts:
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return ClockFacts(suspended, _clock_in_step())


def _clock_in_step() -> bool | None:
    libc = ctypes.CDLL(None, use_errno=True)
    timex = ctypes.create_string_buffer(512)  # larger than struct timex; modes 0 at its beginning: only ask
    try:
        state = libc.adjtimex(timex)
    except AttributeError:
        return None
    return None if state < 0 else state != _TIME_ERROR


def refused_port(host: str, port: int) -> str | None:
    """Why no service can listen there; None if it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: ended connections do not count
            tried.bind(address)
            tried.listen(1)
    except (OSError, UnicodeError) as error:
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return None


def free_port(host: str) -> int:
    """A port at which nothing listens now, for a program that must be told one."""
    for number in ports.candidates():
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, number))
            port: int = probe.getsockname()[1]
            return port
    raise OSError(errno.EADDRINUSE, f"no port of {host} is free")


def file_system(directory: Path) -> FileSystemFacts:
    """Of an existing directory. Raises OSError."""
    usage = shutil.disk_usage(directory)
    kind, point, options = _mount_of(directory)
    return FileSystemFacts(kind, point, options, usage.total, usage.free)


def _mount_of(directory: Path) -> tuple[str, str, frozenset[str]]:
    """Kind, mount point and options, of the mount and of its file system. The last mount at a place counts."""
    mounts = {}
    with contextlib.suppress(OSError):
        for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            mount, _, rest = line.partition(" - ")
            fields, source = mount.split(" "), rest.split(" ")
            if len(fields) > 5 and len(source) > 2:
                point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
                mounts[point] = source[0], point, frozenset(fields[5].split(",")) | frozenset(source[2].split(","))
    place = directory.resolve()
    return next((mounts[str(one)] for one in (place, *place.parents) if str(one) in mounts), ("", "", frozenset()))


def measure_syncs(directory: Path) -> SyncFacts:
    """Overwrite one block again and again and sync each time, in a file without a name. Raises OSError."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        fd = file.fileno()
        os.pwrite(fd, bytes(_BLOCK), 0)
        os.fsync(fd)  # the block is allocated: what follows changes no metadata
        times = []
        for number in range(_SYNCS):
            os.pwrite(fd, number.to_bytes(8, "big") * (_BLOCK // 8), 0)
            began = time.perf_counter()
            os.fdatasync(fd)
            times.append(time.perf_counter() - began)
        return SyncFacts(statistics.median(times), max(times), _direct_works(fd))


def _direct_works(fd: int) -> bool:
    try:
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True
