"""Attributes of directories in which programs make changes, so that they need not be asked for after each.

After a change of its own the kernel forgets what it knew of the directory, but it needs to know it before the next one:
who may change it. What was asked for a moment ago and has been changed only here since is known. So is a directory that
was removed here, for who still works in it. No I/O happens here.
"""

from collections.abc import Iterable

from threefs.bounded_dict import BoundedDict
from threefs.wire import meta_pb2 as pb

MAX_DIRECTORIES = 4096

#: Stands for an answer that somebody waits for.
FetchToken = object


class DirectoryAttrCache:
    """`cache_s` is how old an answer may be."""

    def __init__(self, cache_s: float) -> None:
        self._cache_s = cache_s
        self._directories = BoundedDict[int, tuple[pb.Inode, float]](MAX_DIRECTORIES)  # and until when
        self._fetches: dict[int, FetchToken] = {}
        self._removed = BoundedDict[int, pb.Inode](MAX_DIRECTORIES)  # as long as the kernel may know them

    def get(self, inode: int, now_s: float) -> tuple[pb.Inode, float] | None:
        """What is known of it, and for how many seconds yet."""
        found = self._directories.get(inode)
        if found is None:
            return None
        left_s = found[1] - now_s
        if left_s <= 0:
            del self._directories[inode]
            return None
        return found[0], left_s

    # ---- asking ----

    def begin_fetch(self, inode: int) -> FetchToken:
        """It is about to be asked for; then call `answered`."""
        ask = self._fetches[inode] = object()
        return ask

    def end_fetch(self, number: int, ask: FetchToken, inode: pb.Inode | None, asked_s: float) -> None:
        """`inode` was asked for at that time, or there is none. It may be older than a change of meanwhile."""
        if self._fetches.get(number) is not ask:
            return
        del self._fetches[number]
        if inode is not None and inode.type == pb.DIRECTORY and self._cache_s > 0:
            self._directories.put(number, (inode, asked_s + self._cache_s))

    # ---- changes of ours, once they have been answered ----

    def entry_changed(self, inode: int, time_ns: int) -> None:
        """An entry that is no directory has come or gone, at that time of the meta service (0: it has not said)."""
        if not time_ns:
            self.invalidate(inode)
            return
        self._fetches.pop(inode, None)
        found = self._directories.get(inode)
        if found is not None:
            known = found[0]
            known.mtime_ns = max(known.mtime_ns, time_ns)
            known.ctime_ns = max(known.ctime_ns, time_ns)

    def invalidate(self, inode: int) -> None:
        """It has changed in another way, or nobody knows whether it has."""
        self._fetches.pop(inode, None)
        self._directories.pop(inode, None)

    def clear(self) -> None:
        """Any of them may have changed."""
        self._fetches.clear()
        self._directories.clear()

    # ---- removed ones ----

    def insert_removed(self, inode: pb.Inode) -> None:
        inode.nlink = 0
        self.invalidate(inode.inode)
        self._removed.put(inode.inode, inode)

    def get_removed(self, inode: int) -> pb.Inode | None:
        return self._removed.get(inode)

    def forget_removed(self, inodes: Iterable[tuple[int, int]]) -> None:
        """The kernel has forgotten them."""
        if self._removed:
            for inode, _ in inodes:
                self._removed.pop(inode, None)
