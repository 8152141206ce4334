"""Attributes of directories in which programs make changes, so that they are not fetched after each change.

After each of its own changes the kernel drops the attributes of the directory, and asks for them before the next one,
to check permissions. This cache applies the mount's own changes to attributes that were fetched a moment ago. It also
keeps the attributes of directories that the mount has removed, for programs that still work in them. No I/O happens
here.
"""

from collections.abc import Iterable

from threefs.bounded_dict import BoundedDict
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.validity import Validity

MAX_DIRECTORIES = 4096

#: Identifies a fetch whose answer has not come yet.
FetchToken = object


class DirectoryAttrCache:
    def __init__(self, validity: Validity) -> None:
        self._validity = validity
        self._directories = BoundedDict[int, tuple[pb.Inode, float]](
            MAX_DIRECTORIES
        )  # attributes, when they were asked for
        self._fetches: dict[int, FetchToken] = {}
        self._removed = BoundedDict[int, pb.Inode](MAX_DIRECTORIES)  # until the kernel forgets them

    def get(self, inode: int, now_s: float) -> tuple[pb.Inode, float] | None:
        """The attributes, and for how many seconds they are still valid."""
        found = self._directories.get(inode)
        if found is None:
            return None
        left_s = self._validity.left_s(found[1], now_s)
        if not left_s:
            del self._directories[inode]
            return None
        return found[0], left_s

    # ---- fetching ----

    def begin_fetch(self, inode: int) -> FetchToken:
        """The attributes are about to be fetched. Call `end_fetch` with the token that this returns."""
        token = self._fetches[inode] = object()
        return token

    def end_fetch(self, number: int, token: FetchToken, inode: pb.Inode | None, asked_s: float) -> None:
        """The answer to the question sent at `asked_s`; None if it failed. It is dropped if the directory was changed
        or fetched again since."""
        if self._fetches.get(number) is not token:
            return
        del self._fetches[number]
        if inode is not None and inode.type == pb.DIRECTORY and self._validity:
            self._directories.put(number, (inode, asked_s))

    # ---- changes of this mount, once they have been answered ----

    def entry_changed(self, inode: int, time_ns: int) -> None:
        """An entry that is not a directory was added or removed. `time_ns` is the time of the meta service (0: not
        known)."""
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
        """The directory was changed in another way, or may have been."""
        self._fetches.pop(inode, None)
        self._directories.pop(inode, None)

    def clear(self) -> None:
        """Any directory may have changed."""
        self._fetches.clear()
        self._directories.clear()

    # ---- removed directories ----

    def insert_removed(self, inode: pb.Inode) -> None:
        inode.nlink = 0
        self.invalidate(inode.inode)
        self._removed.put(inode.inode, inode)

    def get_removed(self, inode: int) -> pb.Inode | None:
        return self._removed.get(inode)

    def forget_removed(self, inodes: Iterable[tuple[int, int]]) -> None:
        """The kernel has forgotten these inodes."""
        if self._removed:
            for inode, _ in inodes:
                self._removed.pop(inode, None)
