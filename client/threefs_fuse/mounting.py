"""Mounting and unmounting: by the system call as root, else by the helper program `fusermount3`."""

import ctypes
import errno
import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from threefs.env import fd_passing

_DEVICE = "/dev/fuse"
_HELPER = "fusermount3"
_NOSUID, _NODEV = 1 << 1, 1 << 2
_DETACH = 2
#: Options of mount(8), and the flags of mount(2) that they set and clear.
_FLAGS = {
    "ro": (1 << 0, 0),
    "rw": (0, 1 << 0),
    "nosuid": (_NOSUID, 0),
    "suid": (0, _NOSUID),
    "nodev": (_NODEV, 0),
    "dev": (0, _NODEV),
    "noexec": (1 << 3, 0),
    "exec": (0, 1 << 3),
    "sync": (1 << 4, 0),
    "async": (0, 1 << 4),
    "dirsync": (1 << 7, 0),
    "noatime": (1 << 10, 0),
}


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A mount that the system shows as `source`, of the type fuse.`subtype`. `options` are those of mount(8) that
    `known_options` returns."""

    point: str
    source: str
    subtype: str
    options: Sequence[str] = ()
    allow_other: bool = False  # users other than the one who mounts may use it


def known_options() -> frozenset[str]:
    return frozenset(_FLAGS)


def flags(options: Sequence[str]) -> int:
    """The flags of mount(2). Set-user-id programs and devices do not work unless an option allows them."""
    found = _NOSUID | _NODEV
    for option in options:
        on, off = _FLAGS[option]
        found = found & ~off | on
    return found


def mount(request: MountRequest) -> int:
    """Mount, and return the open descriptor of /dev/fuse. Raises OSError."""
    return _mount_as_root(request) if os.geteuid() == 0 else _mount_by_helper(request)


def _mount_as_root(request: MountRequest) -> int:
    mode = stat.S_IFMT(os.stat(request.point).st_mode)
    fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        options = [f"fd={fd}", f"rootmode={mode:o}", f"user_id={os.getuid()}", f"group_id={os.getgid()}"]
        options += ["default_permissions", *(["allow_other"] if request.allow_other else [])]
        _call(
            "mount",
            os.fsencode(request.source),
            os.fsencode(request.point),
            f"fuse.{request.subtype}".encode(),
            ctypes.c_ulong(flags(request.options)),
            ",".join(options).encode(),
        )
    except BaseException:
        os.close(fd)
        raise
    return fd


def _mount_by_helper(request: MountRequest) -> int:
    source = request.source.replace("\\", "\\\\").replace(",", "\\,")
    options = [f"fsname={source}", f"subtype={request.subtype}", "default_permissions", *request.options]
    options += ["allow_other"] if request.allow_other else []
    command = [_HELPER, "-o", ",".join(options), "--", request.point]
    try:
        fd, message = fd_passing.descriptor_of(command, "_FUSE_COMMFD")
    except FileNotFoundError:
        raise OSError(
            errno.ENOENT, f"the program {_HELPER} is not installed; it is in Debian's package fuse3"
        ) from None
    if fd is None:
        raise OSError(errno.EPERM, message.strip() or f"{_HELPER} failed and said nothing")
    return fd


def unmount(point: str) -> None:
    """Detach the mount now. Programs go on with the files that they have open. Raises OSError."""
    if os.geteuid() == 0:
        _call("umount2", os.fsencode(point), ctypes.c_int(_DETACH))
        return
    done = subprocess.run([_HELPER, "-u", "-z", "--", point], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise OSError(errno.EPERM, done.stderr.strip())


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
