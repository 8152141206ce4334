"""A small file system in memory, for the kernel's protocol alone: files in one directory."""

import asyncio
import errno
import os
import stat
from collections.abc import Sequence

from threefs_fuse.fuse_filesystem import Answer, FuseFileSystem
from threefs_fuse.protocol import ROOT
from threefs_fuse.replies import Entry, Opened, Page, Space
from threefs_fuse.requests import Caller, Setting

LONG_S = 3600.0


class FuseFiles(FuseFileSystem):
    """A file called "slow" is opened by nobody: that waits until it is stopped."""

    def __init__(self) -> None:
        self.names: dict[bytes, int] = {}
        self.content: dict[int, bytearray] = {}
        self.attributes: dict[bytes, bytes] = {}
        self.forgotten: list[tuple[int, int]] = []
        self.callers: set[Caller] = set()
        self.stopped = 0
        self.remembered_s = 0.0  # what the kernel is told of a file
        self.is_ready = asyncio.Event()
        self.reading = asyncio.Event()  # somebody waits for content
        self.may_read = asyncio.Event()
        self.may_read.set()

    def ready(self) -> None:
        self.is_ready.set()

    def _entry(self, inode: int) -> Entry:
        if inode == ROOT:
            return Entry(ROOT, stat.S_IFDIR | 0o755, 2)
        size, remembered_s = len(self.content[inode]), self.remembered_s
        return Entry(inode, stat.S_IFREG | 0o644, 1, size=size, name_s=remembered_s, attributes_s=remembered_s)

    def lookup(self, parent: int, caller: Caller, name: bytes) -> Entry:
        self.callers.add(caller)
        return self._entry(self.names[name]) if name in self.names else Entry(0)

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        self.forgotten += inodes

    def getattr(self, inode: int, caller: Caller, handle: int | None) -> Entry:
        return self._entry(inode)

    async def setattr(self, inode: int, caller: Caller, setting: Setting) -> Entry:
        await asyncio.sleep(0)
        if setting.size is not None:
            content = self.content[inode]
            del content[setting.size :]
            content.extend(bytes(setting.size - len(content)))
        return self._entry(inode)

    def statfs(self, inode: int, caller: Caller) -> Space:
        return Space(4096, 100, 50, 50, 10, 5)

    async def create(
        self, parent: int, caller: Caller, name: bytes, flags: int, mode: int, umask: int
    ) -> tuple[Entry, Opened]:
        await asyncio.sleep(0)
        if name == b"refused":
            raise OSError(errno.EDQUOT, "")
        if name == b"broken":
            raise ValueError("a fault of the file system")
        inode = self.names[name] = len(self.content) + 2
        self.content[inode] = bytearray()
        return self._entry(inode), Opened(inode)

    def open(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Answer[Opened]:
        return self._open_slowly(inode) if self.names.get(b"slow") == inode else Opened(inode)

    async def _open_slowly(self, inode: int) -> Opened:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return Opened(inode)

    async def read(self, inode: int, caller: Caller, handle: int, offset: int, size: int) -> bytes:
        self.reading.set()
        await self.may_read.wait()
        return bytes(self.content[inode][offset : offset + size])

    async def write(
        self, inode: int, caller: Caller, handle: int, offset: int, data: memoryview, how: int, flags: int
    ) -> int:
        await asyncio.sleep(0)
        content = self.content[inode]
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
        return len(data)

    def release(self, inode: int, caller: Caller, handle: int, owner: int, flock: bool) -> None:
        pass

    def unlink(self, parent: int, caller: Caller, name: bytes) -> None:
        if name not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        del self.names[name]

    def readdir(self, inode: int, caller: Caller, handle: int, offset: int, page: Page) -> Page:
        for number, (name, found) in list(enumerate(sorted(self.names.items()), 1))[offset:]:
            if not page.add(name, number, found, stat.S_IFREG, self._entry(found)):
                break
        return page

    def getxattr(self, inode: int, caller: Caller, name: bytes) -> bytes:
        if name not in self.attributes:
            raise OSError(errno.ENODATA, "")
        return self.attributes[name]

    def setxattr(self, inode: int, caller: Caller, name: bytes, value: bytes, flags: int) -> None:
        self.attributes[name] = value

    def listxattr(self, inode: int, caller: Caller) -> Sequence[bytes]:
        return list(self.attributes)
