"""The interface of a file system. Each method returns its result, or a coroutine of its result if it has to wait.

Errors are raised as OSError with a number, or as any exception for which `error_number` returns one. After ENOSYS the
kernel does not ask again, and does what it does for file systems without the operation.
"""

import errno
import os
from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from threefs_fuse.replies import Entry, Opened, Page, Space
from threefs_fuse.requests import Caller, Lock, Setting

T = TypeVar("T")
Answer: TypeAlias = T | Coroutine[Any, Any, T]
Content = bytes | bytearray | memoryview


class FuseFileSystem:
    """The file system chooses the inode numbers; the root has protocol.ROOT."""

    def error_number(self, error: Exception) -> int:
        """The error number that the program gets."""
        return error.errno or errno.EIO if isinstance(error, OSError) else errno.EIO

    def ready(self) -> None:
        """The handshake is done: the mount can be used."""

    # ---- lookups and attributes ----

    def lookup(self, parent: int, caller: Caller, name: bytes) -> Answer[Entry]:
        """An entry with inode 0 if the name is absent."""
        raise _not_implemented()

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """The kernel forgets these inodes: (inode, number of answers that had it) each."""

    def getattr(self, inode: int, caller: Caller, handle: int | None) -> Answer[Entry]:
        raise _not_implemented()

    def setattr(self, inode: int, caller: Caller, setting: Setting) -> Answer[Entry]:
        raise _not_implemented()

    def readlink(self, inode: int, caller: Caller) -> Answer[bytes]:
        raise _not_implemented()

    def statfs(self, inode: int, caller: Caller) -> Answer[Space]:
        raise _not_implemented()

    def access(self, inode: int, caller: Caller, wanted: int) -> Answer[None]:
        raise _not_implemented()

    # ---- names ----

    def symlink(self, parent: int, caller: Caller, name: bytes, target: bytes) -> Answer[Entry]:
        raise _not_implemented()

    def mknod(self, parent: int, caller: Caller, name: bytes, mode: int, device: int, umask: int) -> Answer[Entry]:
        raise _not_implemented()

    def mkdir(self, parent: int, caller: Caller, name: bytes, mode: int, umask: int) -> Answer[Entry]:
        raise _not_implemented()

    def unlink(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        raise _not_implemented()

    def rmdir(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        raise _not_implemented()

    def rename(
        self, parent: int, caller: Caller, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> Answer[None]:
        raise _not_implemented()

    def link(self, parent: int, caller: Caller, inode: int, name: bytes) -> Answer[Entry]:
        raise _not_implemented()

    # ---- files ----

    def create(
        self, parent: int, caller: Caller, name: bytes, flags: int, mode: int, umask: int
    ) -> Answer[tuple[Entry, Opened]]:
        raise _not_implemented()

    def tmpfile(
        self, parent: int, caller: Caller, name: bytes, flags: int, mode: int, umask: int
    ) -> Answer[tuple[Entry, Opened]]:
        """Create a file without a name; `name` has no meaning."""
        raise _not_implemented()

    def open(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Answer[Opened]:
        raise _not_implemented()

    def read(self, inode: int, caller: Caller, handle: int, offset: int, size: int) -> Answer[Content]:
        """Fewer bytes only at the end of the file."""
        raise _not_implemented()

    def write(
        self, inode: int, caller: Caller, handle: int, offset: int, data: memoryview, how: int, flags: int
    ) -> Answer[int]:
        """`data` is valid until the answer. `how` has the flags WRITE_..., `flags` those of open(2)."""
        raise _not_implemented()

    def flush(self, inode: int, caller: Caller, handle: int, owner: int) -> Answer[None]:
        """A descriptor is closed."""
        raise _not_implemented()

    def fsync(self, inode: int, caller: Caller, handle: int, only_data: bool) -> Answer[None]:
        raise _not_implemented()

    def release(self, inode: int, caller: Caller, handle: int, owner: int, flock: bool) -> Answer[None]:
        raise _not_implemented()

    def fallocate(self, inode: int, caller: Caller, handle: int, offset: int, length: int, mode: int) -> Answer[None]:
        raise _not_implemented()

    def lseek(self, inode: int, caller: Caller, handle: int, offset: int, whence: int) -> Answer[int]:
        raise _not_implemented()

    def copy_file_range(
        self,
        inode: int,
        caller: Caller,
        handle: int,
        offset: int,
        to_inode: int,
        to_handle: int,
        to_offset: int,
        length: int,
    ) -> Answer[int]:
        raise _not_implemented()

    # ---- locks ----

    def getlk(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[Lock]:
        """A lock that conflicts; of type F_UNLCK if there is none."""
        raise _not_implemented()

    def setlk(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[None]:
        """Lock or unlock. EAGAIN if another owner has a conflicting lock."""
        raise _not_implemented()

    def setlkw(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[None]:
        """The same, but wait for the lock."""
        raise _not_implemented()

    # ---- directories ----

    def opendir(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Answer[Opened]:
        return Opened(0)

    def readdir(self, inode: int, caller: Caller, handle: int, offset: int, page: Page) -> Answer[Page]:
        """Fill the page with the entries behind position `offset`. It stays empty at the end."""
        raise _not_implemented()

    def releasedir(self, inode: int, caller: Caller, handle: int) -> Answer[None]:
        return None

    def fsyncdir(self, inode: int, caller: Caller, handle: int, only_data: bool) -> Answer[None]:
        raise _not_implemented()

    def syncfs(self, inode: int, caller: Caller) -> Answer[None]:
        raise _not_implemented()

    # ---- extended attributes ----

    def getxattr(self, inode: int, caller: Caller, name: bytes) -> Answer[bytes]:
        raise _not_implemented()

    def listxattr(self, inode: int, caller: Caller) -> Answer[Sequence[bytes]]:
        raise _not_implemented()

    def setxattr(self, inode: int, caller: Caller, name: bytes, value: bytes, flags: int) -> Answer[None]:
        raise _not_implemented()

    def removexattr(self, inode: int, caller: Caller, name: bytes) -> Answer[None]:
        raise _not_implemented()


def _not_implemented() -> OSError:
    return OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
