"""Whether a process that has got a signal will end.

The kernel tells of every signal, also of those that a program has a handler for and wants to go on after. On a local
file system only the deadly ones end a call, and few programs expect anything else.
"""

_KILL = 1 << 8
#: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH: nobody ends for these, not even by default.
_HARMLESS = sum(1 << (number - 1) for number in (17, 18, 19, 20, 21, 22, 23, 28))
_FIELDS = (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt")


def is_dying(thread: int) -> bool:
    """True also for one that is gone, or in a place that we do not see (0)."""
    try:
        with open(f"/proc/{thread}/status", "rb") as file:
            return deadly(file.read())
    except OSError:
        return True


def deadly(status: bytes) -> bool:
    """The same for the text of a `/proc/PID/status`."""
    found = dict.fromkeys(_FIELDS, 0)
    for line in status.splitlines():
        name, _, value = line.partition(b":")
        if name in found:
            found[name] = int(value, 16)
    pending = found[b"SigPnd"] | found[b"ShdPnd"]
    spared = found[b"SigBlk"] | found[b"SigIgn"] | found[b"SigCgt"] | _HARMLESS
    return bool(pending & _KILL or pending & ~spared)
