"""The open files of the mount, and their open handles by the numbers that the kernel knows."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import structlog
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data.write_budget import WriteBudget
from threefs_fuse.protocol import OpenFlag

from threefs.background import BackgroundTasks
from threefs.bounded_dict import BoundedDict
from threefs.errors import DeadlineExceeded, NotFound, Retry, SessionLost, ThreefsError
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.cache.validity import Validity
from threefs_mount.files.deferred_closes import DeferredCloses
from threefs_mount.files.flush_deadline import FlushDeadline
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.open_handle import OpenHandle
from threefs_mount.options import MIN_DIRTY_BYTES

#: Writes are synced in the background after this time.
SYNC_AFTER_S = 1.0
#: For this many files, also closed ones, the change counter of the kernel's pages is remembered, and for as many
#: closed ones the newest that was known.
_MAX_CHANGES = 65_536

_LOG = structlog.get_logger()

Opened = TypeVar("Opened", pb.OpenReply, pb.CreateReply)


class OpenFileTable:
    def __init__(self, context: ClientContext, max_dirty_bytes: int, validity: Validity) -> None:
        self.kernel_attrs = KernelAttrCache(validity)
        self._context = context
        self._files: dict[int, OpenFile] = {}
        self._handles: dict[int, OpenHandle] = {}
        self._next = 1
        self._budget = WriteBudget(max_dirty_bytes)
        self._page_changes = BoundedDict[int, int](_MAX_CHANGES)  # inode -> change counter of the kernel's pages
        self._closed_changes = BoundedDict[int, int](_MAX_CHANGES)  # inode -> change counter when it was closed
        self.on_attributes_changed: Callable[[int], None] = lambda inode: None
        # Written bytes of the inode were lost, and the kernel may have them in its pages.
        self.on_lost: Callable[[int], None] = lambda inode: None
        # Cached attributes of the inode are not valid any more.
        self.on_invalidated: Callable[[int], None] = lambda inode: None
        self._background = BackgroundTasks()
        self._flush_deadline = FlushDeadline(context)
        self._syncing: set[OpenFile] = set()
        self._deferred_closes = DeferredCloses(context, self._remove)

    def set_max_dirty(self, limit_bytes: int) -> None:
        self._budget.set_limit(max(limit_bytes, MIN_DIRTY_BYTES))

    @property
    def unsent_bytes(self) -> int:
        """Written bytes of all files that are not durable yet."""
        return self._budget.used_bytes

    @property
    def open_count(self) -> int:
        return len(self._handles)

    # ---- lookups ----

    def get(self, inode: int) -> OpenFile | None:
        return self._files.get(inode)

    def open_among(self, inodes: Iterable[int]) -> set[int]:
        """Those of the inodes that are open on this mount."""
        return self._files.keys() & inodes

    def place(self, inode: int) -> pb.Place:
        """The inode for a request. If it is not open on this mount, the program has found it by its name, which may
        belong to another file by now: the meta service checks that."""
        if inode in self._files:
            return pb.Place(base=inode)
        return pb.Place(base=inode, named=True, moves=self.kernel_attrs.moves(inode))

    def handle(self, number: int) -> OpenHandle:
        return self._handles[number]

    def overlay_local(self, inode: pb.Inode, asked_s: float, *, named: bool = True) -> pb.Inode:
        """The inode with the unsynced writes of this mount, which the kernel is about to get: under a name if `named`,
        else only its attributes. The meta service was asked at `asked_s`."""
        file = self._files.get(inode.inode)
        if file is not None:
            inode = file.overlay_local(inode)
        self.on_invalidated(inode.inode)
        self.kernel_attrs.record(inode, asked_s, named=named)
        return inode

    def is_late(self, inode: pb.Inode) -> bool:
        """Whether the answer is older than what was known when the file was closed, so it may lack what this mount has
        written. The answer to a question that is sent now is newer, unless the metadata were restored from a backup."""
        known = self._closed_changes.get(inode.inode, 0)
        return inode.inode not in self._files and 0 < inode.change < known

    def with_pages(self) -> list[OpenFile]:
        """The open files of which the kernel may have pages."""
        return [file for file in self._files.values() if file.open_handles and file.has_pages]

    # ---- opening ----

    async def open(self, inode: int, flags: int, caller: pb.Caller) -> tuple[int, bool]:
        """(number of the new handle, whether the kernel may keep its pages of the file).

        Calls `on_attributes_changed` if the kernel may have other attributes of the file.
        """
        file = self._files.get(inode)
        if file is None:
            return await self._open(inode, flags, caller, None)
        await self._acquire_session_lock(file)
        try:
            if flags & os.O_TRUNC:
                await file.settle()
            return await self._open(inode, flags, caller, file)
        finally:
            file.session_lock.release()

    async def _acquire_session_lock(self, file: OpenFile) -> None:
        """Raises DeadlineExceeded: many opens that nobody answers do not take their time one after the other."""
        timeout_s = self._context.options.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await file.session_lock.acquire()
        except TimeoutError:
            raise DeadlineExceeded(
                f"another open or close of inode {file.inode.inode} has not ended within {timeout_s:g} s"
            ) from None

    async def _open(self, inode: int, flags: int, caller: pb.Caller, file: OpenFile | None) -> tuple[int, bool]:
        needs_session = _writable(flags) and (file is None or not file.session)
        session = self._context.random.token(16) if needs_session else b""
        request = pb.OpenRequest(
            place=pb.Place(base=inode, moves=self.kernel_attrs.moves(inode)),
            session=session,
            truncate=bool(flags & os.O_TRUNC),
            access=access_of(flags),
        )
        if session or request.truncate:
            request.mutation.CopyFrom(self._context.meta.mutation())
        try:
            reply = await self._call_with_session(methods.OPEN, request, caller)
        except NotFound:
            raise name_replaced() from None
        if not reply.inode.nlink:
            await self._close_unneeded(reply.inode, session)
            raise name_replaced()
        return await self._add_handle(reply, session, flags, file)

    async def create(self, request: pb.CreateRequest, flags: int, caller: pb.Caller) -> tuple[int, pb.CreateReply]:
        """Create a file and open it. Returns its handle and the reply. The request lacks only its session."""
        request.session = self._context.random.token(16)
        reply = await self._call_with_session(methods.CREATE, request, caller)
        number, _ = await self._add_handle(reply, request.session, flags)
        return number, reply

    async def _call_with_session(self, method: Method[Any, Opened], request: Any, caller: pb.Caller | None) -> Opened:
        """Call, under the lease if the call opens a session."""
        if not request.session:
            return await self._call(method, request, caller)
        lease = self._context.lease
        await lease.acquire()
        try:
            reply = await self._call(method, request, caller)
        except BaseException as error:
            if not isinstance(error, ThreefsError) or error.retry is Retry.UNKNOWN:
                find = partial(self._find_opened, method, request, caller)
                self._context.session_closer.close_if_opened(find, request.session, caller)
            lease.release()
            raise
        lease.granted(reply.lease)
        return reply

    async def _find_opened(self, method: Method[Any, Opened], request: Any, caller: pb.Caller | None) -> int:
        """The inode that such a call has opened, if it had an effect."""
        if method == methods.OPEN:
            return int(request.place.base)
        if request.unnamed:  # a repeat, which makes no second one
            return (await self._call(method, request, caller)).inode.inode
        return (await self._call(methods.STAT, pb.StatRequest(place=request.place))).inode.inode

    async def _add_handle(
        self, reply: Opened, session: bytes, flags: int, locked: OpenFile | None = None
    ) -> tuple[int, bool]:
        """The caller holds the session lock of the file `locked`."""
        inode = reply.inode
        file = self._files.get(inode.inode)
        new = file is None
        if file is None:
            file = self._files[inode.inode] = OpenFile(self._context, inode, self._budget, session, reply.lease)
            file.on_lost, file.reopen = self.on_lost, self._reopen_session
            file.on_privileges_dropped = self.on_attributes_changed
        handle = OpenHandle(file, _writable(flags), appends(flags), file.errors.sample(), self._flush_deadline)
        file.open_handles += 1
        file.writable_handles += handle.writable
        if not handle.writable:  # also beside a session: it may end after the file has lost its last name
            self._context.lease.opened_for_read(inode.inode)
        number = self._next
        self._next += 1
        self._handles[number] = handle
        keep = self._may_keep_pages(inode) and not file.dirty
        file.set_pages_change(inode.change)
        file.has_pages |= keep
        # The reply to a create has the attributes.
        if isinstance(reply, pb.OpenReply) and self.kernel_attrs.differs(inode, self._context.clock.monotonic()):
            self.on_attributes_changed(inode.inode)
        if new:
            file.set_over_quota(reply.over_quota)  # of a file that is open for reading only, the reply says nothing
            return number, keep
        if not session or file is locked:
            await self._use_session(file, reply, session)
        else:  # others have opened it since this open was sent, and its session may just be ending
            async with file.session_lock:
                await self._use_session(file, reply, session)
        return number, keep

    async def _close_unneeded(self, inode: pb.Inode, session: bytes) -> None:
        """End a session that is not needed, because another open was faster. A failure is not one of the open."""
        if session:
            request = pb.CloseRequest(mutation=self._context.meta.mutation(), inode=inode.inode, session=session)
            try:
                await self._call(methods.CLOSE, request)
            except BaseException as error:
                self._context.session_closer.close_later(request, None, self._context.lease.number, error)
                if not isinstance(error, ThreefsError):
                    raise
            else:
                self._context.lease.release()

    def _may_keep_pages(self, inode: pb.Inode) -> bool:
        keep = self._page_changes.get(inode.inode) == inode.change
        self._page_changes.put(inode.inode, inode.change)
        return keep

    # ---- handles ----

    def on_locks_lost(self, inode: int) -> None:
        """The locks on a file were lost with the lease, so another client may have had them since. Unsent bytes were
        written under these locks, so they are dropped. Programs that have the file open must open it again."""
        file = self._files.get(inode)
        if file is not None:
            for handle in self._handles.values():
                handle.lock_lost = handle.lock_lost or handle.file is file
            file.discard()

    def try_write(
        self,
        number: int,
        offset: int,
        data: bytes | memoryview,
        *,
        append: bool = False,
        writer: pb.Caller | None = None,
    ) -> bool:
        """Write or append without I/O, see OpenFile. False when I/O is needed."""
        handle = self._handles[number]
        file = handle.file
        if handle.lock_lost or not self._context.lease.is_valid or not file.session:
            return False
        self._page_changes.pop(file.inode.inode, None)
        return file.try_append(data, writer) if append else file.try_write(offset, data, writer)

    async def write(
        self,
        number: int,
        offset: int,
        data: bytes | memoryview,
        *,
        append: bool = False,
        writer: pb.Caller | None = None,
    ) -> None:
        file = await self._writable_file(number)
        await (file.append(data, writer) if append else file.write(offset, data, writer))

    async def _writable_file(self, number: int) -> OpenFile:
        """The file of a handle, with a session under a valid lease."""
        handle = self._handles[number]
        file = handle.file
        self._page_changes.pop(file.inode.inode, None)
        if not self._context.lease.is_valid:
            await self._context.lease.revalidate()
        handle.check_lock()
        if not file.session:
            await file.ensure_session()
        return file

    async def allocate(self, number: int, offset: int, length: int, mode: int) -> None:
        await (await self._writable_file(number)).allocate(offset, length, mode)

    async def copy(self, number: int, offset: int, to: int, to_offset: int, length: int) -> int:
        destination = await self._writable_file(to)
        self._handles[number].check_lock()
        return await self._handles[number].file.copy_to(offset, destination, to_offset, length)

    async def _reopen_session(self, file: OpenFile) -> None:
        """The lease of this process has expired, and its sessions have ended with it: open a new one."""
        request = pb.OpenRequest(
            mutation=self._context.meta.mutation(),
            place=paths.inode_place(file.inode.inode),
            session=self._context.random.token(16),
        )
        reply = await self._call_with_session(methods.OPEN, request, None)
        await self._use_session(file, reply, request.session)

    def _on_lease_lost(self) -> None:
        self._background.attempt("reopening of files", self._reopen_all())

    async def _reopen_all(self) -> None:
        """Open the files again that programs have open for writing: a file without a session is freed when it loses its
        last name. What cannot be opened now is opened when it is needed."""
        for file in list(self._files.values()):
            async with file.session_lock:
                if file.has_session and file.writable_handles:
                    with contextlib.suppress(ThreefsError):
                        await file.ensure_session()

    async def _use_session(self, file: OpenFile, reply: Opened, session: bytes) -> None:
        """For a file whose session was lost, or that had none; if it has got another one meanwhile, end this one."""
        if session and not file.session:
            await file.start_session(reply.inode, session, reply.lease)
            file.set_over_quota(reply.over_quota)
        else:
            file.apply_inode(reply.inode)
            await self._close_unneeded(reply.inode, session)

    async def truncate(self, number: int, length: int, caller: pb.Caller) -> pb.Inode:
        file = await self._writable_file(number)
        self._page_changes.pop(file.inode.inode, None)
        return await file.truncate(length, caller, through_handle=True)

    async def truncate_by_name(self, file: OpenFile, length: int, caller: pb.Caller) -> pb.Inode:
        """Raises SessionLost if the name that the program has used belongs to another file by now."""
        try:
            return await file.truncate(length, caller, moves=self.kernel_attrs.moves(file.inode.inode))
        except NotFound:
            raise name_replaced() from None

    def release(self, number: int) -> Coroutine[Any, Any, None] | None:
        """The last descriptor of a handle is closed. The session ends with the last writable handle.

        If everything is synced, the session ends later, in a batch: else the program would wait for a commit.
        """
        handle = self._handles.pop(number)
        file = handle.file
        if file.session_lock.locked() or not file.is_clean or self._deferred_closes.is_full:
            return self._release(handle)
        self._forget_handle(handle)
        if file.has_session:
            if not file.writable_handles:
                self._deferred_closes.add(file)
        elif not file.open_handles:
            file.release_now()
            self._remove(file)
        return None

    async def _release(self, handle: OpenHandle) -> None:
        file = handle.file
        async with file.session_lock:
            self._forget_handle(handle)
            await self._close_file(file)

    def _forget_handle(self, handle: OpenHandle) -> None:
        handle.file.open_handles -= 1
        handle.file.writable_handles -= handle.writable
        if not handle.writable:
            self._context.lease.closed_for_read(handle.file.inode.inode)

    async def _close_file(self, file: OpenFile) -> None:
        """End the session, and forget the file, as far as no handle needs them. The caller holds the session lock."""
        try:
            if not file.open_handles:
                await file.release()
            elif not file.writable_handles and file.session:
                await file.end_session()
        finally:
            if not file.open_handles:
                self._remove(file)

    def _remove(self, file: OpenFile) -> None:
        if self._files.get(file.inode.inode) is file:
            del self._files[file.inode.inode]
            self.on_invalidated(file.inode.inode)
            self._closed_changes.put(file.inode.inode, file.inode.change)

    async def _call(self, method: Method[Req, Rep], request: Req, caller: pb.Caller | None = None) -> Rep:
        return await self._context.meta.call(method, request, timeout_s=self._context.options.timeout_s, caller=caller)

    # ---- background ----

    def start(self) -> None:
        self._context.lease.on_lost.append(self._on_lease_lost)
        self._background.start("sync of files", self._sync_loop())

    async def _sync_loop(self) -> None:
        while True:
            await self._context.clock.sleep(SYNC_AFTER_S)
            for file in list(self._files.values()):
                if file.dirty_longer_than(SYNC_AFTER_S) and file not in self._syncing:
                    self._syncing.add(file)
                    self._background.run("sync of a file", self._sync_one(file))

    async def _sync_one(self, file: OpenFile) -> None:
        """In a task of its own: if its chains do not answer, other files need not wait."""
        try:
            await self._logging_errors(partial(self._flush_deadline.sync, file, file.sync))
        finally:
            self._syncing.discard(file)

    async def _logging_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except ThreefsError as error:
            _LOG.warning("writes could not be synced", error=str(error))
        except Exception:
            _LOG.exception("writes could not be synced")

    async def stop(self) -> None:
        """Sync everything and end all sessions, as far as services answer within the timeout of a call."""
        await self._background.stop()
        try:
            async with asyncio.timeout(self._context.options.timeout_s):
                await self._deferred_closes.stop()
                await asyncio.gather(*(self._logging_errors(file.release) for file in list(self._files.values())))
        except TimeoutError:
            dirty = sum(file.dirty for file in self._files.values())
            _LOG.error("the mount ends before all writes are synced, because services do not answer", files=dirty)


def name_replaced() -> SessionLost:
    """The kernel has found the inode by a name that may belong to another one by now. After ESTALE it looks the name up
    again."""
    return SessionLost("the name belongs to another file by now; look it up again")


def _writable(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY


def appends(flags: int) -> bool:
    return _writable(flags) and bool(flags & os.O_APPEND)


def open_flags(flags: int, *, keep: bool) -> OpenFlag:
    """Appends bypass the kernel's cache, which would write them to the end of the file as the kernel knows it."""
    if appends(flags):
        return OpenFlag.DIRECT_IO
    return OpenFlag.KEEP_CACHE if keep else OpenFlag(0)


_ACCESS = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK, os.O_RDWR: os.R_OK | os.W_OK}
_EXECUTED = 0o40  # FMODE_EXEC: the kernel opens a program to execute it, which needs no read permission


def access_of(flags: int) -> int:
    """The permissions that an open needs, as access(2) takes them."""
    return os.X_OK if flags & _EXECUTED else _ACCESS.get(flags & os.O_ACCMODE, os.R_OK | os.W_OK)
