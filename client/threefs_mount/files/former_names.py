"""A file that another mount has moved may be opened here under a name that it has lost, as long as the kernel keeps it.

If the kernel has got the new name as well, nothing in a request tells which of the two the program has used. A program
that makes a new file of the former name would truncate the moved one. So a program that opens or truncates such a file
gets ESTALE once, upon which the kernel looks up its name again, without the program. If that still leads to the file,
the same thread comes back at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.errors import SessionLost
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.files.open_file_table import name_replaced

#: Bounds the memory. Few programs are on their way back at the same time.
_MAX_THREADS = 4096
#: How long a thread may take to come back. One that comes later has found the inode by another name. Most that
#: are sent back never return: their name leads to another file by then, or to none.
_RETURN_S = 1.0


class FormerNames:
    def __init__(self, kernel_attrs: KernelAttrCache, clock: Clock) -> None:
        self._kernel_attrs = kernel_attrs
        self._clock = clock
        self._sent_back = BoundedDict[tuple[int, int], float](_MAX_THREADS)  # (inode, thread) -> until when

    @contextmanager
    def excluded(self, inode: int, thread: int) -> Iterator[None]:
        """A thread has found the inode by a name, and works on it within the context. Raises SessionLost if the name
        has to be looked up again before that.

        If the context raises SessionLost, the thread comes back, too, and with a new answer about its name.
        """
        key = (inode, thread)
        now_s = self._clock.monotonic()
        has_looked_again = now_s < self._sent_back.pop(key, 0.0)
        try:
            if not has_looked_again and self._kernel_attrs.may_have_former_name(inode, now_s):
                raise name_replaced()
            yield
        except SessionLost:
            self._sent_back.put(key, self._clock.monotonic() + _RETURN_S)
            raise
