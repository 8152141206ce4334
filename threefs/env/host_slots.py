"""Slots that the processes of one host share: at most so many are taken at a time by all of them together.

A slot is a lock on one byte of a file, so the kernel gives it back when its process ends in any way. Nothing runs
beside the processes, and a process that hangs keeps only what it has taken. The file also has the limit that the
processes have found out together (`threefs/sender_limit.py`).

These are the record locks of POSIX: a forked child does not inherit them. They do not exclude each other within one
process, so a process has one table, with its own account of what is taken. It never closes the file: that would release
all its locks.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threefs.sender_limit import Limit, OwnLimit

MAX_SLOTS = 1024
_WANT_BYTE = 1024  # whoever waits for a slot has a shared lock on it
_FIRST_BYTE = 2048  # of the slots
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, process
_STATE = struct.Struct("=IIdd")  # value, too many, raised at, cut at


class OwnSlots:
    """Slots of one process. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self.limit: Limit = OwnLimit(most)
        self._taken: set[int] = set()
        self._waiting: dict[object, None] = {}
        self._mutex = threading.Lock()

    def take(self) -> int | None:
        """The number of a slot that is taken from now on; None: there is none."""
        with self._mutex:
            for slot in range(self.limit.value):
                if slot not in self._taken and self._lock(slot):
                    self._taken.add(slot)
                    return slot
        return None

    def give(self, slot: int) -> None:
        with self._mutex:
            self._taken.remove(slot)
            self._unlock(slot)

    def want(self, who: object) -> None:
        """Let others know that `who` waits for a slot."""
        with self._mutex:
            self._waiting[who] = None
            if len(self._waiting) == 1:
                self._ask()

    def unwant(self, who: object) -> None:
        with self._mutex:
            if self._waiting.pop(who, self) is None and not self._waiting:
                self._unask()

    def wanted_by_others(self, who: object) -> bool:
        with self._mutex:
            return len(self._waiting) > (who in self._waiting) or self._asked()

    def _lock(self, slot: int) -> bool:
        return True

    def _unlock(self, slot: int) -> None:
        pass

    def _ask(self) -> None:
        pass

    def _unask(self) -> None:
        pass

    def _asked(self) -> bool:
        return False


def _field(place: int) -> Any:
    """A field of the limit in the file. Processes write it without a lock: what one of them overwrites was as good.

    A read must not fail because its limit cannot be kept: what another program has cut off counts as 0, and a value for
    which a full disk has no room is lost.
    """

    def read(self: "_SharedLimit") -> float:
        found: float = self.read()[place]
        return found

    def write(self: "_SharedLimit", value: float) -> None:
        fields = [*self.read()]
        fields[place] = value
        with contextlib.suppress(OSError):
            os.pwrite(self.fd, _STATE.pack(*fields), 0)

    return property(read, write)


class _SharedLimit:
    """The limit in the file. Other processes, or a machine that broke down, may have left any numbers there."""

    _value: int = _field(0)
    too_many: int = _field(1)
    raised_at: float = _field(2)
    cut_at: float = _field(3)

    def __init__(self, fd: int, most: int) -> None:
        self.fd = fd
        self.most = most

    def read(self) -> tuple[Any, ...]:
        return _STATE.unpack(os.pread(self.fd, _STATE.size, 0).ljust(_STATE.size, b"\0"))

    @property
    def value(self) -> int:
        return min(self._value or self.most, self.most)

    @value.setter
    def value(self, value: int) -> None:
        self._value = value


class HostSlots(OwnSlots):
    """Slots of all processes that open the same file."""

    def __init__(self, path: Path, most: int) -> None:
        """Raises OSError, also if the file is of another user."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _check_owner(path, os.fstat(self._fd))
            if os.fstat(self._fd).st_size < _STATE.size:
                os.ftruncate(self._fd, _STATE.size)
        except BaseException:
            os.close(self._fd)
            raise
        super().__init__(most)
        self._process = os.getpid()
        self.limit = _SharedLimit(self._fd, most)

    def close(self) -> None:
        """Give all slots back. Only for a table that nobody else of the process uses."""
        os.close(self._fd)

    def _lock(self, slot: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_BYTE + slot)
        except BlockingIOError:
            return False
        return True

    def _unlock(self, slot: int) -> None:
        if os.getpid() == self._process:  # a forked child has none of them, and others by another table
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _FIRST_BYTE + slot)

    def _ask(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _WANT_BYTE)

    def _unask(self) -> None:
        if os.getpid() == self._process:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _WANT_BYTE)

    def _asked(self) -> bool:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WANT_BYTE, 1, 0)
        kind: int = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(errno.EPERM, f"{path} can be written by other users")


def directory() -> Path:
    """The directory of this user for files of running processes, made if it is missing. Raises OSError, also if another
    user may write there."""
    user = os.geteuid()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    path = runtime / "threefs" if _is_own_directory(runtime, user) else Path(f"/tmp/threefs-{user}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory")
    _check_owner(path, found)
    return path


def _is_own_directory(path: Path, user: int) -> bool:
    """Whether this user may write there, and no other one owns it: root by `su` or `sudo` keeps the variable of the
    user who called it, and would take that user's place there."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user and os.access(path, os.W_OK)


_mutex = threading.Lock()
_tables: list[OwnSlots] = []  # at most one


def of_host(most: int, on_failure: Callable[[OSError], None]) -> OwnSlots:
    """The slots that all processes of this user share on this host; at most `most` of them are taken at a time. If they
    cannot be had, those of this process alone; `on_failure` is called then, once.

    Processes in another network namespace have other interfaces, so they have other slots.
    """
    with _mutex:
        if not _tables:
            _tables.append(_open(most, on_failure))
        table = _tables[0]
        table.limit.most = max(table.limit.most, most)
        return table


def _open(most: int, on_failure: Callable[[OSError], None]) -> OwnSlots:
    try:
        network = os.stat("/proc/self/ns/net").st_ino
        return HostSlots(directory() / f"receive-slots.{network}", most)
    except OSError as error:
        on_failure(error)
        return OwnSlots(most)


def _forget() -> None:
    """In a forked child, which has none of the locks of its parent."""
    global _mutex
    _mutex = threading.Lock()
    _tables.clear()


os.register_at_fork(after_in_child=_forget)
