"""A file that another mount has moved may be opened here under a name that it has lost, as long as the kernel keeps it.

If the kernel has got the new name as well, nothing in a request tells which of the two the program has used. A program
that makes a new file of the former name would truncate the moved one. So a program that opens or truncates such a file
gets ESTALE once, upon which the kernel looks up its name again, without the program. If that still leads to the file,
the same thread comes back at once.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.errors import SessionLost
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.files.open_file_table import name_replaced

T = TypeVar("T")

#: Bound the memory. Few programs are on their way back at the same time.
_MAX_THREADS = 4096
_MAX_INODES = 16  # of each thread, which comes back to the last one at once, or never
#: How long a thread may take to come back, beside the time in which the kernel looks names up for it. One that comes
#: later has found the inode by another name. Most that are sent back never return: their name leads to another file by
#: then, or to none.
_RETURN_S = 1.0
#: After so long it does not count as on its way, however long look-ups take.
_LONGEST_S = 300.0
#: The number of all threads of other PID namespaces. Whose look-up takes its time is not known of these.
_FOREIGN = 0

_Leave = tuple[float, float]  # until when the thread may come back, and until when at the longest
_NONE: _Leave = (0.0, 0.0)


class FormerNames:
    def __init__(self, kernel_attrs: KernelAttrCache, clock: Clock) -> None:
        self._kernel_attrs = kernel_attrs
        self._clock = clock
        self._sent_back = BoundedDict[int, BoundedDict[int, _Leave]](_MAX_THREADS)  # thread -> inode

    @contextmanager
    def excluded(self, inode: int, thread: int) -> Iterator[None]:
        """A thread has found the inode by a name, and works on it within the context. Raises SessionLost if the name
        has to be looked up again before that.

        If the context raises SessionLost, the thread comes back, too, and with a new answer about its name.
        """
        now_s = self._clock.monotonic()
        has_looked_again = now_s < self._inodes(thread).pop(inode, _NONE)[0]
        try:
            if not has_looked_again and self._kernel_attrs.may_have_former_name(inode, now_s):
                raise name_replaced()
            yield
        except SessionLost:
            self._send_back(inode, thread)
            raise

    def _send_back(self, inode: int, thread: int) -> None:
        inodes, now_s = self._inodes(thread), self._clock.monotonic()
        inodes.put(inode, (now_s + _RETURN_S, now_s + _LONGEST_S))
        self._sent_back.put(thread, inodes)

    def _inodes(self, thread: int) -> BoundedDict[int, _Leave]:
        found = self._sent_back.get(thread)
        return found if found is not None else BoundedDict(_MAX_THREADS if thread == _FOREIGN else _MAX_INODES)

    def looking_up(self, thread: int, answer: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The kernel looks a name up for a thread, which may be on its way back: it does so for each part of the
        path, and before that it may ask for the attributes of the directory in which the path begins. A meta service
        that fails over takes longer for that than a thread has."""
        return self._on_its_way(thread, answer) if thread != _FOREIGN and self._sent_back.get(thread) else answer

    async def _on_its_way(self, thread: int, answer: Coroutine[Any, Any, T]) -> T:
        asked_s = self._clock.monotonic()
        try:
            return await answer
        finally:
            took_s = self._clock.monotonic() - asked_s
            inodes = self._inodes(thread)
            for inode, (until_s, longest_s) in inodes.items():
                if asked_s < until_s:
                    inodes[inode] = min(until_s + took_s, longest_s), longest_s
