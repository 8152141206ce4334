"""What the kernel asks, answered by the cluster. Inode numbers are those of the cluster."""

import errno
import fcntl
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import structlog
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_fuse import notifications, protocol
from threefs_fuse.filesystem import Answer, FuseFileSystem
from threefs_fuse.replies import Entry, Opened, Page, Space
from threefs_fuse.requests import Caller, Lock, Setting

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache import listing_rpc
from threefs_mount.cache.delegation_client import DelegationClient
from threefs_mount.cache.directory_attrs import DirectoryAttrCache
from threefs_mount.cache.listing_cache import ListingCache
from threefs_mount.cache.lock_revalidation import LockRevalidation
from threefs_mount.cache.metadata import MetadataCache
from threefs_mount.cache.prefetcher import Prefetcher
from threefs_mount.cache.revalidator import Revalidator
from threefs_mount.cache.single_flight import SingleFlight
from threefs_mount.files import table
from threefs_mount.files.locks import FileLocks
from threefs_mount.files.table import OpenFileTable, OpenHandle
from threefs_mount.kernel import attrs, credentials, errnos, setattr
from threefs_mount.open_directories import OpenDirectories
from threefs_mount.xattrs import Xattrs

_PERMISSIONS = 0o7777
_NO_REPLACE, _EXCHANGE, _WHITEOUT = 1, 2, 4
#: So much is copied for one request: a program that asks for more does so again.
_COPY_BYTES = 64 << 20

_LOG = structlog.get_logger()


class ThreefsVfs(FuseFileSystem):
    def __init__(self, link: ClientContext, files: OpenFileTable, cache_s: float, ready: Callable[[], None]) -> None:
        self.ready = ready  # type: ignore[method-assign]
        self.tell: Callable[[bytes], None] = lambda notice: None  # the kernel, once it is there
        self.tell_patiently: Callable[[bytes], Awaitable[None]]
        self._link = link
        self._files = files
        files.changed = self._changed
        self._cache_s = cache_s
        drop_pages = lambda inode: self.tell_patiently(notifications.content_changed(inode))  # noqa: E731
        self._renewals = LockRevalidation(files, self._stat, drop_pages)
        files.lost = self._renewals.lost
        self._locks = FileLocks(link, self._renewals.locked, files.locks_lost)
        self.revalidator = Revalidator(link, files, drop_pages, cache_s)
        self._prefetcher = Prefetcher(cache_s, partial(listing_rpc.attributes, link), link.clock)
        self._ahead = self._prefetcher.ahead
        self._listings = ListingCache(partial(listing_rpc.names, link, self._ahead))
        self._prefetcher.walked = self._listings.expect
        self._unasked = MetadataCache(link, files, self._ahead, cache_s)
        self._directories = OpenDirectories(self._listings.begin, self._unasked)
        files.touched = self._ahead.touch
        self._known = DirectoryAttrCache(cache_s)
        self._attributes = SingleFlight(self._getattr)
        self._claimer = DelegationClient(link, cache_s)
        self._claims = self._claimer.claims
        self._xattrs = Xattrs(link, files, self._call, self._change_file)

    async def close(self) -> None:
        """Nothing is asked any more."""
        await self.revalidator.close()
        await self._prefetcher.close()
        await self._listings.close()
        await self._claimer.close()

    def error_number(self, error: Exception) -> int:
        number = errnos.of(error)
        if number in (errno.EIO, errno.ETIMEDOUT):
            _LOG.warning("a request failed", error=repr(error), exc_info=not isinstance(error, OSError))
        return number

    async def _call(self, method: Method[Req, Rep], request: Req, caller: Caller | None = None) -> Rep:
        return await self._link.meta.call(
            method,
            request,
            timeout_s=self._link.options.timeout_s,
            caller=None if caller is None else credentials.from_kernel(caller),
        )

    async def _change(
        self, method: Method[Req, Rep], request: Req, caller: Caller, *names: tuple[int, bytes], inode: int = 0
    ) -> Rep:
        """Call; whatever the outcome, what was known of these names, and of this inode, counts no more."""
        try:
            return await self._call(method, request, caller)
        except BaseException:
            for parent, _ in names:
                self._known.forget(parent)
            raise
        finally:
            for parent, name in names:
                self._ahead.touch_name(parent, name)
            if inode:
                self._ahead.touch(inode)
                self._known.forget(inode)

    async def _change_file(self, method: Method[Req, Rep], request: Req, caller: Caller, inode: int) -> Rep:
        """The same for a file, or a directory, that was found by its name. Raises SessionLost, after which the kernel
        looks the name up again, if it stands for another file by now."""
        try:
            return await self._change(method, request, caller, inode=inode)
        except NotFound:
            raise table.replaced() from None

    def _changed(self, inode: int) -> None:
        self.tell(notifications.attributes_changed(inode))

    def _mutation(self) -> dict[str, Any]:
        return self._link.meta.identity()

    def _entry(self, inode: pb.Inode) -> Entry:
        """Under a name."""
        return attrs.entry(self._files.shown(inode), self._cache_s)

    def _attributes_of(self, inode: pb.Inode) -> Entry:
        return attrs.entry(self._files.shown(inode, named=False), self._cache_s)

    # ---- looking ----

    def lookup(self, parent: int, caller: Caller, name: bytes) -> Answer[Entry]:
        if self._claims.lacks(parent, name, self._link.clock.monotonic()):
            self._ahead.touch_name(parent, name)
            return attrs.ABSENT
        return self._unasked.name(parent, name) or self._lookup(parent, name)

    async def _lookup(self, parent: int, name: bytes) -> Entry:
        renewal = self._renewals.number
        try:
            inode = (await self._call(methods.LOOKUP, pb.LookupRequest(parent=parent, name=name))).inode
        except NotFound:
            self._ahead.asked(parent, name, None, self._link.clock.monotonic())
            self._claims.absent(parent, self._link.clock.monotonic())
            return attrs.ABSENT
        if self._link.atime_reporter.is_pending(inode.inode):
            await self._link.atime_reporter.flush()
            return await self._lookup(parent, name)
        if self._renewals.since(inode.inode, renewal):
            return await self._lookup(parent, name)
        told = self._entry(inode)
        self._ahead.asked(parent, name, inode, self._link.clock.monotonic())
        return told

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """Little is kept for what the kernel knows: its numbers are ours."""
        self._known.let_go(inodes)

    def getattr(self, inode: int, caller: Caller, handle: int | None) -> Answer[Entry]:
        known = self._known.find(inode, self._link.clock.monotonic())
        if known is not None:
            return attrs.entry(*known)
        if self._link.atime_reporter.is_pending(inode):  # it may have been read since others asked
            return self._getattr(inode)
        return self._attributes.ask(inode)

    async def _getattr(self, inode: int) -> Entry:
        ask, asked_s, renewal = self._known.asking(inode), self._link.clock.monotonic(), self._renewals.number
        found = None
        try:
            found = await self._stat(inode)
        except NotFound:
            removed = self._known.find_removed(inode)
            if removed is None:
                raise
            return attrs.entry(removed, self._cache_s)  # somebody works in it
        finally:
            self._known.answered(inode, ask, found, asked_s)
        if self._renewals.since(inode, renewal):
            return await self._getattr(inode)
        return self._attributes_of(found)

    async def _stat(self, inode: int) -> pb.Inode:
        if self._link.atime_reporter.is_pending(inode):
            await self._link.atime_reporter.flush()
        return (await self._call(methods.STAT, pb.StatRequest(place=paths.inode_place(inode)))).inode

    async def readlink(self, inode: int, caller: Caller) -> bytes:
        found = await self._stat(inode)
        if found.type != pb.SYMLINK:
            raise errnos.error(errno.EINVAL)
        return found.target

    async def statfs(self, inode: int, caller: Caller) -> Space:
        return attrs.space(await self._call(methods.STAT_FS, pb.StatFsRequest()))

    # ---- directories ----

    def opendir(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Opened:
        return Opened(self._directories.add(inode, caller.pid))

    def readdir(self, inode: int, caller: Caller, handle: int, offset: int, page: Page) -> Answer[Page]:
        return self._directories.get(handle).read(offset, page)

    def releasedir(self, inode: int, caller: Caller, handle: int) -> None:
        self._directories.remove(handle)

    def fsyncdir(self, inode: int, caller: Caller, handle: int, only_data: bool) -> None:
        """Every change of a directory was durable when it was answered."""

    # ---- names ----

    async def mkdir(self, parent: int, caller: Caller, name: bytes, mode: int, umask: int) -> Entry:
        request = pb.MkdirRequest(
            mutation=self._mutation(), place=paths.child_place(parent, name), mode=mode & _PERMISSIONS, umask=umask
        )
        change = self._change(methods.MKDIR, request, caller, (parent, name))
        reply = await self._claimer.adding(parent, name, request, change)
        self._known.forget(parent)
        return self._entry(reply.inode)

    async def mknod(self, parent: int, caller: Caller, name: bytes, mode: int, device: int, umask: int) -> Entry:
        request = pb.MknodRequest(
            mutation=self._mutation(),
            place=paths.child_place(parent, name),
            type=attrs.TYPES[stat.S_IFMT(mode) or stat.S_IFREG],
            mode=mode & _PERMISSIONS,
            umask=umask,
            rdev=device,
        )
        change = self._change(methods.MKNOD, request, caller, (parent, name))
        return self._named(parent, await self._claimer.adding(parent, name, request, change))

    async def symlink(self, parent: int, caller: Caller, name: bytes, target: bytes) -> Entry:
        request = pb.SymlinkRequest(mutation=self._mutation(), place=paths.child_place(parent, name), target=target)
        change = self._change(methods.SYMLINK, request, caller, (parent, name))
        return self._named(parent, await self._claimer.adding(parent, name, request, change))

    async def link(self, parent: int, caller: Caller, inode: int, name: bytes) -> Entry:
        file = self._files.get(inode)
        if file is not None and not file.inode.nlink:
            await file.settle()  # what nobody could see so far is whole when they can
        request = pb.LinkRequest(
            mutation=self._mutation(), source=self._files.place(inode), destination=paths.child_place(parent, name)
        )
        change = self._change(methods.LINK, request, caller, (parent, name), inode=inode)
        try:
            return self._named(parent, await self._claimer.adding(parent, name, request, change))
        except NotFound:
            raise table.replaced() from None

    def _named(self, parent: int, reply: pb.InodeReply) -> Entry:
        """It has got a name in that directory."""
        self._changed_here(reply.inode)
        self._known.changed(parent, reply.inode.ctime_ns)
        return self._entry(reply.inode)

    def unlink(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        return self._remove(parent, name, pb.NOT_DIRECTORY, caller)

    def rmdir(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        return self._remove(parent, name, pb.ONLY_DIRECTORY, caller)

    async def _remove(self, parent: int, name: bytes, kind: pb.RemoveKind, caller: Caller) -> None:
        request = pb.RemoveRequest(mutation=self._mutation(), place=paths.child_place(parent, name), kind=kind)
        removal = self._claims.removing(parent, name)
        reply = await self._change(methods.REMOVE, request, caller, (parent, name))
        self._claims.removed(removal)
        if reply.directory.inode:
            self._known.forget(parent)
            self._known.removed(reply.directory)
        else:
            self._known.changed(parent, reply.changed_ns)

    async def rename(
        self, parent: int, caller: Caller, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        if flags & ~(_NO_REPLACE | _EXCHANGE | _WHITEOUT):
            raise errnos.error(errno.EINVAL)
        request = pb.RenameRequest(
            mutation=self._mutation(),
            source=paths.child_place(parent, name),
            destination=paths.child_place(new_parent, new_name),
            no_replace=bool(flags & _NO_REPLACE),
            exchange=bool(flags & _EXCHANGE),
            whiteout=bool(flags & _WHITEOUT),
        )
        removal = self._claims.removing(parent, name)
        change = self._change(methods.RENAME, request, caller, (parent, name), (new_parent, new_name))
        reply = await self._claimer.adding(new_parent, new_name, request, change)
        moved = reply.inode
        self._changed_here(moved)
        self._files.told.moved(moved)
        if not flags & (_EXCHANGE | _WHITEOUT) and (moved.type == pb.DIRECTORY or moved.nlink == 1):
            self._claims.removed(removal)  # of two names of one file, both would be left
        if flags & _EXCHANGE or moved.type == pb.DIRECTORY:
            self._known.clear()  # links of their parents, and what was replaced
            if reply.replaced.inode:
                self._known.removed(reply.replaced)  # somebody may work in it
            return
        self._known.changed(parent, moved.ctime_ns)
        self._known.changed(new_parent, moved.ctime_ns)

    # ---- attributes ----

    async def setattr(self, inode: int, caller: Caller, setting: Setting) -> Entry:
        found = None
        if setting.size is not None:
            found = await self._truncate(inode, setting.size, setting.handle, caller)
        file = self._files.get(inode)
        if file is not None and (setting.mtime_now or setting.mtime_ns is not None):
            await file.settle()  # or the end of the writes would set another time later
        request = setattr.request(self._files.place(inode), setting)
        if request is not None:
            request.mutation.CopyFrom(self._link.meta.mutation())
            found = (await self._change_file(methods.SET_ATTR, request, caller, inode)).inode
            self._changed_here(found)
        return self._attributes_of(found if found is not None else await self._stat(inode))

    async def _truncate(self, inode: int, length: int, handle: int | None, caller: Caller) -> pb.Inode:
        """Through an open handle: whoever has one may cut the file, whatever its mode says by now."""
        if handle is not None:
            return await self._files.truncate(handle, length, credentials.from_kernel(caller))
        file = self._files.get(inode)
        if file is not None:
            return await self._files.truncate_by_name(file, length, credentials.from_kernel(caller))
        request = pb.TruncateRequest(mutation=self._mutation(), place=self._files.place(inode), length=length)
        return (await self._change_file(methods.TRUNCATE, request, caller, inode)).inode

    # ---- extended attributes, and ACLs, which come as such ----

    def getxattr(self, inode: int, caller: Caller, name: bytes) -> Answer[bytes]:
        return self._xattrs.get(inode, caller, name)

    async def listxattr(self, inode: int, caller: Caller) -> Sequence[bytes]:
        return await self._xattrs.names(inode, caller)

    async def setxattr(self, inode: int, caller: Caller, name: bytes, value: bytes, flags: int) -> None:
        await self._xattrs.put(inode, caller, name, value, flags)

    async def removexattr(self, inode: int, caller: Caller, name: bytes) -> None:
        await self._xattrs.remove(inode, caller, name)

    def _changed_here(self, inode: pb.Inode) -> None:
        file = self._files.get(inode.inode)
        if file is not None:
            file.changed(inode)

    # ---- files ----

    def create(
        self, parent: int, caller: Caller, name: bytes, flags: int, mode: int, umask: int
    ) -> Answer[tuple[Entry, Opened]]:
        request = pb.CreateRequest(
            mutation=self._mutation(),
            place=paths.child_place(parent, name),
            exclusive=bool(flags & os.O_EXCL),
            truncate=bool(flags & os.O_TRUNC),
        )
        return self._create(request, caller, flags, mode, umask)

    def tmpfile(
        self, parent: int, caller: Caller, name: bytes, flags: int, mode: int, umask: int
    ) -> Answer[tuple[Entry, Opened]]:
        request = pb.CreateRequest(mutation=self._mutation(), place=paths.inode_place(parent), unnamed=True)
        return self._create(request, caller, flags, mode, umask)

    async def _create(
        self, request: pb.CreateRequest, caller: Caller, flags: int, mode: int, umask: int
    ) -> tuple[Entry, Opened]:
        request.mode = mode & _PERMISSIONS
        request.umask = umask
        request.access = table.access_of(flags)
        parent, birth_ns, created = request.place.base, 0, False
        try:
            creation = self._files.create(request, flags, credentials.from_kernel(caller))
            number, reply = await self._claimer.creating(request, creation)
            inode, created = self._files.shown(reply.inode), reply.created
            birth_ns = inode.birth_ns
        finally:
            self._ahead.touch_name(parent, request.place.path)
            if not birth_ns or (created and not request.unnamed):
                self._known.changed(parent, birth_ns)
        return attrs.entry(inode, self._cache_s), Opened(number, table.treatment(flags, keep=False))

    async def open(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Opened:
        try:
            number, keep = await self._files.open(inode, flags, credentials.from_kernel(caller))
        finally:
            self._ahead.touch(inode)  # if it was replaced, the kernel looks its name up again
        return Opened(number, table.treatment(flags, keep=keep))

    def read(self, inode: int, caller: Caller, handle: int, offset: int, size: int) -> Answer[memoryview]:
        found = self._files.handle(handle)
        found.check()
        return found.file.read(offset, size, past_cache=found.appends)

    def write(
        self, inode: int, caller: Caller, handle: int, offset: int, data: memoryview, how: int, flags: int
    ) -> Answer[int]:
        if how & protocol.WRITE_KILL_SUIDGID:
            file = self._files.handle(handle).file
            if file.written_by(credentials.writer(caller, file.inode)):
                self.tell(notifications.attributes_changed(inode))
        # Where the kernel has chosen the offset for pages of its cache (O_APPEND was set later), it counts.
        append = (
            bool(flags & os.O_APPEND) and not how & protocol.WRITE_FROM_CACHE and self._files.handle(handle).appends
        )
        if not flags & os.O_DSYNC and self._files.write_at_once(handle, offset, data, append=append):
            return len(data)
        return self._write(handle, offset, data, append, bool(flags & os.O_DSYNC))

    async def _write(self, handle: int, offset: int, data: memoryview, append: bool, durable: bool) -> int:
        await self._files.write(handle, offset, data, append=append)
        if durable:
            await self._files.handle(handle).sync()
        return len(data)

    def flush(self, inode: int, caller: Caller, handle: int, owner: int) -> Answer[None]:
        """A descriptor is closed: from now on others see what was written (close-to-open)."""
        found = self._files.handle(handle)
        if self._locks.closing(inode, handle, owner):
            return self._flush(found, inode, owner)
        return found.flush() if found.writable and found.unsettled else None

    async def _flush(self, handle: OpenHandle, inode: int, owner: int) -> None:
        """With any descriptor of a file that a process closes, its record locks on it end."""
        try:
            await handle.flush()
        finally:
            await self._locks.give_up_all(inode, owner, flock=False)

    async def fsync(self, inode: int, caller: Caller, handle: int, only_data: bool) -> None:
        await self._files.handle(handle).sync()

    def release(self, inode: int, caller: Caller, handle: int, owner: int, flock: bool) -> Answer[None]:
        locked = self._locks.closed(handle, flock=flock)
        return self._release(inode, handle, owner, flock) if locked else self._files.release(handle)

    async def _release(self, inode: int, handle: int, owner: int, flock: bool) -> None:
        try:
            ending = self._files.release(handle)
            if ending is not None:
                await ending
        finally:
            await self._locks.end(inode, handle, owner, flock=flock)

    async def fallocate(self, inode: int, caller: Caller, handle: int, offset: int, length: int, mode: int) -> None:
        await self._files.allocate(handle, offset, length, mode)

    def lseek(self, inode: int, caller: Caller, handle: int, offset: int, whence: int) -> Answer[int]:
        file = self._files.handle(handle).file
        if whence == os.SEEK_DATA:
            return file.seek_data(offset)
        if whence == os.SEEK_HOLE:
            return file.seek_hole(offset)
        raise errnos.error(errno.EINVAL)

    async def copy_file_range(
        self,
        inode: int,
        caller: Caller,
        handle: int,
        offset: int,
        to_inode: int,
        to_handle: int,
        to_offset: int,
        length: int,
    ) -> int:
        return await self._files.copy(handle, offset, to_handle, to_offset, min(length, _COPY_BYTES))

    # ---- locks ----

    def getlk(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[Lock]:
        return self._locks.conflict(inode, owner, lock, flock=flock)

    def setlk(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[None]:
        return self._lock(inode, handle, owner, lock, flock, wait=False)

    def setlkw(self, inode: int, caller: Caller, handle: int, owner: int, lock: Lock, flock: bool) -> Answer[None]:
        return self._lock(inode, handle, owner, lock, flock, wait=True)

    async def _lock(self, inode: int, handle: int, owner: int, lock: Lock, flock: bool, *, wait: bool) -> None:
        if lock.type != fcntl.F_UNLCK:
            self._files.handle(handle).check()
            await self._locks.take(inode, owner, lock, flock=flock, wait=wait, handle=handle)
            return
        try:  # what is lost is told by fsync and close: whoever unlocks a file cannot do anything about it
            await self._files.handle(handle).settle()
        finally:
            await self._locks.give_up(inode, owner, lock, flock=flock)
