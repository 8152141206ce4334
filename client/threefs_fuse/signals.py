"""Whether a process that has received a signal will end, and whether one ends already.

The kernel reports every signal, also those that the program handles. On a local file system only deadly signals end a
call, and few programs expect anything else.
"""

_KILL = 1 << 8
#: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH: they end no process, not even by default.
_HARMLESS = sum(1 << (number - 1) for number in (17, 18, 19, 20, 21, 22, 23, 28))
_EXITING = 0x4  # PF_EXITING: the kernel takes the process apart, and closes its files
_FIELDS = (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt")


def is_dying(thread: int) -> bool:
    """Whether the thread will end. True also if it has ended, or is in a PID namespace that this process cannot see
    (0)."""
    try:
        with open(f"/proc/{thread}/status", "rb") as file:
            return has_deadly_signal(file.read())
    except OSError:
        return True


def is_exiting(thread: int) -> bool:
    """Whether the thread ends now, so that no code of its program runs any more. False if nothing is known of it."""
    try:
        with open(f"/proc/{thread}/stat", "rb") as file:
            return bool(int(file.read().rpartition(b")")[2].split()[6]) & _EXITING)
    except OSError:
        return False


def has_deadly_signal(status: bytes) -> bool:
    """Whether the text of a `/proc/PID/status` has a pending signal that ends the process."""
    found = dict.fromkeys(_FIELDS, 0)
    for line in status.splitlines():
        name, _, value = line.partition(b":")
        if name in found:
            found[name] = int(value, 16)
    pending = found[b"SigPnd"] | found[b"ShdPnd"]
    survived = found[b"SigBlk"] | found[b"SigIgn"] | found[b"SigCgt"] | _HARMLESS
    return bool(pending & _KILL or pending & ~survived)
