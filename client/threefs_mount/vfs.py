"""The file system of a mount: answers the kernel's requests with calls to the cluster. Inode numbers are the
cluster's."""

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
from threefs_fuse import protocol, replies, signals
from threefs_fuse.fuse_filesystem import Answer, FuseFileSystem
from threefs_fuse.replies import Entry, Opened, Page, Space
from threefs_fuse.requests import Caller, Lock, Setting

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.lock_revalidation import LockRevalidation
from threefs_mount.cache.metadata_cache import MetadataCache
from threefs_mount.cache.page_revalidator import PageRevalidator
from threefs_mount.cache.validity import Validity
from threefs_mount.files import open_file_table
from threefs_mount.files.former_names import FormerNames
from threefs_mount.files.locks import FileLocks
from threefs_mount.files.open_file import content_gone
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.files.open_handle import OpenHandle
from threefs_mount.kernel import attrs, credentials, errnos
from threefs_mount.open_directories import OpenDirectories
from threefs_mount.xattrs import Xattrs

_PERMISSIONS = 0o7777
_NO_REPLACE, _EXCHANGE, _WHITEOUT = 1, 2, 4
#: Bytes that one request copies at most. A program that wants more asks again.
_COPY_BYTES = 64 << 20

_LOG = structlog.get_logger()


class ThreefsVfs(FuseFileSystem):
    def __init__(
        self, context: ClientContext, files: OpenFileTable, validity: Validity, ready: Callable[[], None]
    ) -> None:
        self.ready = ready  # type: ignore[method-assign]
        self.notify: Callable[[bytes], None] = lambda notification: None  # until there is a session
        self.notify_and_wait: Callable[[bytes], Awaitable[None]]
        self._context = context
        self._clock = context.clock
        self._files = files
        files.on_attributes_changed = self._notify_attributes
        self._validity = validity
        self._former_names = FormerNames(files.kernel_attrs, context.clock)
        drop_pages = lambda inode: self.notify_and_wait(replies.content_changed(inode))  # noqa: E731
        self._lock_revalidation = LockRevalidation(files, self._stat, drop_pages)
        files.on_lost = self._lock_revalidation.on_lost
        self._locks = FileLocks(context, self._lock_revalidation.on_locked, files.on_locks_lost)
        self.revalidator = PageRevalidator(context, files, drop_pages, validity.cache_s)
        self._cache = MetadataCache(context, files, validity)
        self._directories = OpenDirectories(self._cache.listings.open, self._cache.entries)
        self._xattrs = Xattrs(context, files, self._call, self._change_file)

    async def close(self) -> None:
        """Stop the background tasks, and return the delegations."""
        await self.revalidator.close()
        await self._cache.close()

    def error_number(self, error: Exception) -> int:
        number = errnos.of(error)
        if number in (errno.EIO, errno.ETIMEDOUT):
            _LOG.warning("a request failed", error=repr(error), exc_info=not isinstance(error, OSError))
        return number

    async def _call(self, method: Method[Req, Rep], request: Req, caller: Caller | None = None) -> Rep:
        return await self._context.meta.call(
            method,
            request,
            timeout_s=self._context.options.timeout_s,
            caller=None if caller is None else credentials.from_kernel(caller),
        )

    async def _change(
        self, method: Method[Req, Rep], request: Req, caller: Caller, *names: tuple[int, bytes], inode: int = 0
    ) -> Rep:
        """Call for a change of these names and of this inode, which invalidates their cached entries."""
        return await self._cache.change(self._call(method, request, caller), *names, inode=inode)

    async def _change_file(self, method: Method[Req, Rep], request: Req, caller: Caller, inode: int) -> Rep:
        """The same for an inode that the kernel has found by its name. Raises SessionLost if the name belongs to
        another inode by now; the kernel then looks it up again."""
        try:
            return await self._change(method, request, caller, inode=inode)
        except NotFound:
            raise open_file_table.name_replaced() from None

    def _notify_attributes(self, inode: int) -> None:
        self.notify(replies.attributes_changed(inode))

    def _mutation(self) -> dict[str, Any]:
        return self._context.meta.identity()

    def _entry(self, inode: pb.Inode, asked_s: float) -> Entry:
        """The entry of an inode under a name, from the answer to a question that was sent at `asked_s`."""
        return attrs.entry(self._files.overlay_local(inode, asked_s), self._left_s(asked_s))

    def _attr_entry(self, inode: pb.Inode, asked_s: float) -> Entry:
        """The entry of an inode without a name: only its attributes."""
        return attrs.entry(self._files.overlay_local(inode, asked_s, named=False), self._left_s(asked_s))

    def _left_s(self, asked_s: float) -> float:
        """How long the kernel may keep the answer to a question that was sent at `asked_s`."""
        return self._validity.left_s(asked_s, self._clock.monotonic())

    # ---- lookups and attributes ----

    def lookup(self, parent: int, caller: Caller, name: bytes) -> Answer[Entry]:
        return self._cache.get(parent, name) or self._former_names.looking_up(caller.pid, self._lookup(parent, name))

    async def _lookup(self, parent: int, name: bytes, *, again: bool = False) -> Entry:
        revalidation, asked_s = self._lock_revalidation.generation, self._clock.monotonic()
        try:
            inode = (await self._call(methods.LOOKUP, pb.LookupRequest(parent=parent, name=name))).inode
        except NotFound:
            self._cache.insert(parent, name, None)
            return attrs.ABSENT
        if self._context.atime_reporter.is_pending(inode.inode):
            await self._context.atime_reporter.flush()
            return await self._lookup(parent, name)
        if self._lock_revalidation.revalidated_since(inode.inode, revalidation):
            return await self._lookup(parent, name)
        if not again and self._files.is_late(inode):
            return await self._lookup(parent, name, again=True)
        entry = self._entry(inode, asked_s)
        self._cache.insert(parent, name, inode)
        return entry

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """The mount keeps little for the inodes that the kernel knows, because inode numbers are the cluster's."""
        self._cache.forget(inodes)

    def getattr(self, inode: int, caller: Caller, handle: int | None) -> Answer[Entry]:
        known = self._cache.get_attributes(inode)
        return known if known is not None else self._former_names.looking_up(caller.pid, self._getattr(inode))

    async def _getattr(self, inode: int, *, again: bool = False) -> Entry:
        revalidation, asked_s = self._lock_revalidation.generation, self._clock.monotonic()
        try:
            found = await self._cache.fetch_attributes(inode, self._stat)
        except NotFound:
            removed = self._cache.get_removed(inode)
            if removed is not None:
                return removed
            if self._files.get(inode) is not None:
                raise content_gone() from None
            raise
        if self._lock_revalidation.revalidated_since(inode, revalidation):
            return await self._getattr(inode)
        if not again and self._files.is_late(found):
            return await self._getattr(inode, again=True)
        return self._attr_entry(found, asked_s)

    async def _stat(self, inode: int) -> pb.Inode:
        if self._context.atime_reporter.is_pending(inode):
            await self._context.atime_reporter.flush()
        return (await self._call(methods.STAT, pb.StatRequest(place=paths.inode_place(inode)))).inode

    async def readlink(self, inode: int, caller: Caller) -> bytes:
        found = await self._stat(inode)
        if found.type != pb.SYMLINK:
            raise errnos.error(errno.EINVAL)
        return found.target

    async def statfs(self, inode: int, caller: Caller) -> Space:
        return attrs.statfs(await self._call(methods.STAT_FS, pb.StatFsRequest()))

    # ---- directories ----

    def opendir(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Opened:
        return Opened(self._directories.add(inode, caller.pid))

    def readdir(self, inode: int, caller: Caller, handle: int, offset: int, page: Page) -> Answer[Page]:
        return self._directories.get(handle).read(offset, page)

    def releasedir(self, inode: int, caller: Caller, handle: int) -> None:
        self._directories.remove(handle)

    def fsyncdir(self, inode: int, caller: Caller, handle: int, only_data: bool) -> None:
        """Every change of a directory is durable when it is answered."""

    # ---- names ----

    async def mkdir(self, parent: int, caller: Caller, name: bytes, mode: int, umask: int) -> Entry:
        request = pb.MkdirRequest(
            mutation=self._mutation(), place=paths.child_place(parent, name), mode=mode & _PERMISSIONS, umask=umask
        )
        asked_s = self._clock.monotonic()
        change = self._change(methods.MKDIR, request, caller, (parent, name))
        reply = await self._cache.create(parent, name, request, change)
        self._cache.subdirectory_changed(parent)
        return self._entry(reply.inode, asked_s)

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
        asked_s = self._clock.monotonic()
        return self._linked(parent, await self._cache.create(parent, name, request, change), asked_s)

    async def symlink(self, parent: int, caller: Caller, name: bytes, target: bytes) -> Entry:
        request = pb.SymlinkRequest(mutation=self._mutation(), place=paths.child_place(parent, name), target=target)
        change = self._change(methods.SYMLINK, request, caller, (parent, name))
        asked_s = self._clock.monotonic()
        return self._linked(parent, await self._cache.create(parent, name, request, change), asked_s)

    async def link(self, parent: int, caller: Caller, inode: int, name: bytes) -> Entry:
        file = self._files.get(inode)
        if file is not None and not file.inode.nlink:
            await file.sync()  # its content must be complete when its first name is visible
        request = pb.LinkRequest(
            mutation=self._mutation(), source=self._files.place(inode), destination=paths.child_place(parent, name)
        )
        change = self._change(methods.LINK, request, caller, (parent, name), inode=inode)
        asked_s = self._clock.monotonic()
        try:
            return self._linked(parent, await self._cache.create(parent, name, request, change), asked_s)
        except NotFound:
            raise open_file_table.name_replaced() from None

    def _linked(self, parent: int, reply: pb.InodeReply, asked_s: float) -> Entry:
        """An inode has got a name in that directory."""
        self._apply_change(reply.inode)
        self._cache.entry_changed(parent, reply.inode.ctime_ns)
        return self._entry(reply.inode, asked_s)

    def unlink(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        return self._remove(parent, name, pb.NOT_DIRECTORY, caller)

    def rmdir(self, parent: int, caller: Caller, name: bytes) -> Answer[None]:
        return self._remove(parent, name, pb.ONLY_DIRECTORY, caller)

    async def _remove(self, parent: int, name: bytes, kind: pb.RemoveKind, caller: Caller) -> None:
        request = pb.RemoveRequest(mutation=self._mutation(), place=paths.child_place(parent, name), kind=kind)
        unlink = self._cache.begin_unlink(parent, name)
        reply = await self._change(methods.REMOVE, request, caller, (parent, name))
        self._cache.unlink_done(unlink, parent, reply)

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
        unlink = self._cache.begin_unlink(parent, name)
        change = self._change(methods.RENAME, request, caller, (parent, name), (new_parent, new_name))
        reply = await self._cache.create(new_parent, new_name, request, change)
        self._apply_change(reply.inode)
        self._cache.rename_done(
            unlink,
            reply,
            (parent, new_parent),
            keeps_name=bool(flags & (_EXCHANGE | _WHITEOUT)),
            exchange=bool(flags & _EXCHANGE),
        )

    # ---- attributes ----

    async def setattr(self, inode: int, caller: Caller, setting: Setting) -> Entry:
        found, asked_s = None, self._clock.monotonic()
        if setting.size is not None:
            found = await self._truncate(inode, setting.size, setting.handle, caller)
        file = self._files.get(inode)
        privileges = (setting.mode or 0) & (stat.S_ISUID | stat.S_ISGID)
        if file is not None and (setting.mtime_now or setting.mtime_ns is not None or privileges):
            await file.sync()  # a later sync of the writes would set another time, and take the privileges away
        if setting.atime_ns is not None:
            await self._context.atime_reporter.before_setting(inode)
        request = attrs.setattr_request(self._files.place(inode), setting)
        if request is not None:
            request.mutation.CopyFrom(self._context.meta.mutation())
            found = (await self._change_file(methods.SET_ATTR, request, caller, inode)).inode
            self._apply_change(found)
        return self._attr_entry(found if found is not None else await self._stat(inode), asked_s)

    async def _truncate(self, inode: int, length: int, handle: int | None, caller: Caller) -> pb.Inode:
        """Through an open handle for writing the file may be truncated, whatever its mode is by now."""
        if handle is not None:
            return await self._files.truncate(handle, length, credentials.from_kernel(caller))
        with self._former_names.excluded(inode, caller.pid):
            file = self._files.get(inode)
            if file is not None:
                return await self._files.truncate_by_name(file, length, credentials.from_kernel(caller))
            request = pb.TruncateRequest(mutation=self._mutation(), place=self._files.place(inode), length=length)
            return (await self._change_file(methods.TRUNCATE, request, caller, inode)).inode

    # ---- extended attributes, and ACLs, which the kernel passes on as such ----

    def getxattr(self, inode: int, caller: Caller, name: bytes) -> Answer[bytes]:
        return self._xattrs.get(inode, caller, name)

    async def listxattr(self, inode: int, caller: Caller) -> Sequence[bytes]:
        return await self._xattrs.list(inode, caller)

    async def setxattr(self, inode: int, caller: Caller, name: bytes, value: bytes, flags: int) -> None:
        await self._xattrs.set(inode, caller, name, value, flags)

    async def removexattr(self, inode: int, caller: Caller, name: bytes) -> None:
        await self._xattrs.remove(inode, caller, name)

    def _apply_change(self, inode: pb.Inode) -> None:
        file = self._files.get(inode.inode)
        if file is not None:
            file.apply_own_change(inode)

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
        request.access = open_file_table.access_of(flags)
        asked_s = self._clock.monotonic()
        creation = self._files.create(request, flags, credentials.from_kernel(caller))
        number, reply = await self._cache.create_file(request, creation)
        return self._entry(reply.inode, asked_s), Opened(number, open_file_table.open_flags(flags, keep=False))

    async def open(self, inode: int, caller: Caller, flags: int, kill_privileges: bool) -> Opened:
        try:
            with self._former_names.excluded(inode, caller.pid):
                number, keep = await self._files.open(inode, flags, credentials.from_kernel(caller))
        finally:
            self._cache.invalidate_inode(inode)  # if it was replaced, the kernel looks up its name again
        return Opened(number, open_file_table.open_flags(flags, keep=keep))

    def read(self, inode: int, caller: Caller, handle: int, offset: int, size: int) -> Answer[memoryview]:
        found = self._files.handle(handle)
        found.check_lock()
        return found.file.read(offset, size, past_cache=found.appends)

    def write(
        self, inode: int, caller: Caller, handle: int, offset: int, data: memoryview, how: int, flags: int
    ) -> Answer[int]:
        writer = None
        if how & protocol.WRITE_KILL_SUIDGID:
            writer = credentials.writer(caller, self._files.handle(handle).file.inode)
        # If O_APPEND was set after the open, the write comes from the kernel's cache, and its offset counts.
        append = (
            bool(flags & os.O_APPEND) and not how & protocol.WRITE_FROM_CACHE and self._files.handle(handle).appends
        )
        if not flags & os.O_DSYNC and self._files.try_write(handle, offset, data, append=append, writer=writer):
            return len(data)
        return self._write(handle, offset, data, append, writer, flags)

    async def _write(
        self, handle: int, offset: int, data: memoryview, append: bool, writer: pb.Caller | None, flags: int
    ) -> int:
        await self._files.write(handle, offset, data, append=append, writer=writer)
        if flags & os.O_DSYNC:
            await self._files.handle(handle).sync(only_data=flags & os.O_SYNC == os.O_DSYNC)
        return len(data)

    def flush(self, inode: int, caller: Caller, handle: int, owner: int) -> Answer[None]:
        """A descriptor is closed. Afterwards other clients see what was written (close-to-open)."""
        found = self._files.handle(handle)
        if self._locks.closing_descriptor(inode, handle, owner):
            return self._flush(found, inode, owner)
        return found.flush(partial(signals.is_exiting, caller.pid)) if found.writable and found.needs_flush else None

    async def _flush(self, handle: OpenHandle, inode: int, owner: int) -> None:
        """The record locks of a process on a file end when it closes any descriptor of the file. Also of a program that
        ends: bytes that are still to be sent would come over those of the next holder."""
        try:
            await handle.flush()
        finally:
            await self._locks.unlock_all(inode, owner, flock=False)

    async def fsync(self, inode: int, caller: Caller, handle: int, only_data: bool) -> None:
        await self._files.handle(handle).sync(only_data=only_data)

    def release(self, inode: int, caller: Caller, handle: int, owner: int, flock: bool) -> Answer[None]:
        if not self._locks.closing_handle(handle, flock=flock):
            return self._files.release(handle)
        close = partial(self._store_and_release, handle)
        return self._locks.end_handle(inode, handle, owner, flock=flock, close=close)

    async def _store_and_release(self, handle: int) -> None:
        """Locks end with the open file. What was written under them, through whichever handle, is stored before."""
        try:
            await self._files.handle(handle).sync_quietly()
        finally:
            ending = self._files.release(handle)
            if ending is not None:
                await ending

    async def fallocate(self, inode: int, caller: Caller, handle: int, offset: int, length: int, mode: int) -> None:
        await self._files.allocate(handle, offset, length, mode)

    async def lseek(self, inode: int, caller: Caller, handle: int, offset: int, whence: int) -> int:
        file = self._files.handle(handle).file
        if file.has_session:  # the kernel may hold pages that were changed through a mapping: with this it sends them
            await self.notify_and_wait(replies.content_changed(inode))
        if whence == os.SEEK_DATA:
            return await file.seek_data(offset)
        if whence == os.SEEK_HOLE:
            return await file.seek_hole(offset)
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
        found = self._files.handle(handle)
        if lock.type != fcntl.F_UNLCK:
            found.check_lock()
            await self._locks.acquire(inode, owner, lock, flock=flock, wait=wait, handle=handle)
            found.check_lock()  # the answer may have told of the loss; this lock ends with the open file
            return
        if not self._locks.holds(inode, owner, flock=flock):
            return  # not even a sync, for which a chain may take long, and the kernel lets no signal end the request
        try:  # an error is reported by fsync and close, not by the unlock
            await found.sync_quietly()
        finally:
            await self._locks.unlock(inode, owner, lock, flock=flock)
