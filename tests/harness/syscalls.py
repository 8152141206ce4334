"""Runs a command under the system calls that a systemd unit allows: `python syscalls.py UNIT COMMAND ...`.

systemd does the same with the same library, but only as the first process of a machine.
"""

import ctypes
import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_EPERM = 1


def filters(unit: Path) -> list[str]:
    """The unit's SystemCallFilter= lines."""
    lines = unit.read_text().splitlines()
    return [line.removeprefix("SystemCallFilter=") for line in lines if line.startswith("SystemCallFilter=")]


def members(group: str) -> set[str]:
    """The system calls of a group like @system-service, with those of the groups in it."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", group], capture_output=True, text=True, check=True
    )
    words = [line.split()[0] for line in shown.stdout.splitlines()[1:] if line.strip() and "#" not in line]
    found = {word for word in words if not word.startswith("@")}
    for word in words:
        if word.startswith("@"):
            found |= members(word)
    return found


def allowed(unit: Path) -> set[str]:
    """A line adds, one that begins with a tilde takes away, as in systemd.exec(5)."""
    calls = members("@default")
    for line in filters(unit):
        named = set().union(*(members(word) for word in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def restrict(calls: set[str]) -> None:
    """From now on this process, and what it becomes, gets EPERM for any other call."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | _EPERM)))
    for call in sorted(calls):
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # others are of other kinds of machines
            assert library.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0) == 0, call
    assert library.seccomp_load(context) == 0, "seccomp is not there"


if __name__ == "__main__":
    restrict(allowed(Path(sys.argv[1])))
    os.execvp(sys.argv[2], sys.argv[2:])
