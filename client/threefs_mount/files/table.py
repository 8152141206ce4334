"""The files that are open on the mount, and the numbers under which the kernel knows their open handles."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_fuse.protocol import OpenFlag

from threefs.background import BackgroundTasks
from threefs.bounded_dict import BoundedDict
from threefs.errors import LockLost, NotFound, SessionLost, ThreefsError, Unavailable
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.write_budget import WriteBudget

#: What programs have written is sent and settled by itself after this while.
SYNC_AFTER_S = 1.0
#: Of files that are closed, we know for this many what the kernel still has of their content.
_MAX_PAGE_CHANGES = 65_536
#: Sessions that nobody waits for end together: after this while, or when there are so many.
CLOSE_DELAY_S = 0.1
_CLOSE_BATCH = 64
#: With so many, whoever closes waits.
_MAX_DEFERRED = 256
_MAX_CLOSE_BATCHES = 2  # rounds at once

_LOG = structlog.get_logger()

Opened = TypeVar("Opened", pb.OpenReply, pb.CreateReply)


@dataclass(slots=True)
class OpenHandle:
    """One open file description of a program. (`dup` and `fork` share it, the kernel does not tell.)"""

    file: OpenFile
    writable: bool
    appends: bool
    errors_seen: int  # errors of writing that it was told of, see errseq.py
    lock_lost: bool = False  # when it was open a lock on the file was lost

    def check_lock(self) -> None:
        """Raises LockLost."""
        if self.lock_lost:
            raise LockLost()

    async def sync(self) -> None:
        """For fsync: all is durable. Raises also what this handle was not told of yet, which it is then."""
        failure = await self._sync_file()
        self.errors_seen, lost = self.file.errors.check_and_advance(self.errors_seen)
        self.check_lock()
        _raise_first(lost, failure)

    async def flush(self) -> None:
        """For close: the same, but fsync tells it once more."""
        failure = await self._sync_file()
        self.check_lock()
        _raise_first(self.file.errors.check(self.errors_seen), failure)

    async def sync_quietly(self) -> None:
        """All is durable, as far as it can be; what is lost is told by `sync` and `flush`."""
        await self._sync_file()

    async def _sync_file(self) -> ThreefsError | None:
        """Who stops waiting does not stop it. What is lost is in the file's errors, also if it is not waited for."""
        try:
            await asyncio.shield(asyncio.ensure_future(self.file.sync()))
        except ThreefsError as error:
            return error
        return None

    @property
    def needs_flush(self) -> bool:
        """`flush` has something to do or to say."""
        return self.lock_lost or self.file.needs_sync or self.file.errors.check(self.errors_seen) is not None


class OpenFileTable:
    def __init__(self, context: ClientContext, max_dirty_bytes: int, cache_s: float) -> None:
        self.kernel_attrs = KernelAttrCache(cache_s)
        self._context = context
        self._files: dict[int, OpenFile] = {}
        self._handles: dict[int, OpenHandle] = {}
        self._next = 1
        self._budget = WriteBudget(max_dirty_bytes, self._files)
        self._page_changes = BoundedDict[int, int](
            _MAX_PAGE_CHANGES
        )  # inode: the change as of which the kernel has its content
        self.on_attributes_changed: Callable[[int], None] = lambda inode: None
        self.on_lost: Callable[[int], None] = lambda inode: None  # what the kernel has of its content may not be stored
        self.on_invalidated: Callable[[int], None] = lambda inode: (
            None
        )  # what was known of it before is not so any more
        self._background = BackgroundTasks()
        self._syncing: set[OpenFile] = set()
        self._deferred: dict[int, OpenFile] = {}  # without writers, but with a session
        self._timer: asyncio.TimerHandle | None = None
        self._closing = BackgroundTasks()

    # ---- looking ----

    def get(self, inode: int) -> OpenFile | None:
        return self._files.get(inode)

    def open_among(self, inodes: Iterable[int]) -> set[int]:
        """Which of them are open here."""
        return self._files.keys() & inodes

    def place(self, inode: int) -> pb.Place:
        """Where nobody here has it open, the kernel has found it by its name."""
        if inode in self._files:
            return pb.Place(base=inode)
        return pb.Place(base=inode, named=True, moves=self.kernel_attrs.moves(inode))

    def handle(self, number: int) -> OpenHandle:
        return self._handles[number]

    def overlay_local(self, inode: pb.Inode, *, named: bool = True) -> pb.Inode:
        """With what has been written here and is not known elsewhere: what the kernel is about to be told, under a name
        or only of its attributes."""
        file = self._files.get(inode.inode)
        if file is not None:
            inode = file.overlay_local(inode)
        self.on_invalidated(inode.inode)
        self.kernel_attrs.record(inode, self._context.clock.monotonic(), named=named)
        return inode

    def with_pages(self) -> list[OpenFile]:
        """Those that are open, and of which the kernel may keep pages."""
        return [file for file in self._files.values() if file.open_handles and file.has_pages]

    # ---- opening ----

    async def open(self, inode: int, flags: int, caller: pb.Caller) -> tuple[int, bool]:
        """(number of the handle, whether the kernel may go on with the content that it has).

        `changed` is told if the file has other attributes than the kernel knows.
        """
        file = self._files.get(inode)
        if file is None:
            return await self._open(inode, flags, caller, None)
        async with file.session_lock:
            if flags & os.O_TRUNC:
                await file.flush()
            return await self._open(inode, flags, caller, file)

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
        return await self._add_handle(reply, session, flags)

    async def create(self, request: pb.CreateRequest, flags: int, caller: pb.Caller) -> tuple[int, pb.CreateReply]:
        """Make a file and open it: its handle, and what was answered. The request lacks only its session."""
        request.session = self._context.random.token(16)
        reply = await self._call_with_session(methods.CREATE, request, caller)
        number, _ = await self._add_handle(reply, request.session, flags)
        return number, reply

    async def _call_with_session(self, method: Method[Any, Opened], request: Any, caller: pb.Caller | None) -> Opened:
        """Call, and take note of the session if the call opens one."""
        if not request.session:
            return await self._call(method, request, caller)
        lease = self._context.lease
        await lease.acquire()
        try:
            reply = await self._call(method, request, caller)
        except BaseException:
            lease.release()
            raise
        lease.granted(reply.lease)
        return reply

    async def _add_handle(self, reply: Opened, session: bytes, flags: int) -> tuple[int, bool]:
        inode = reply.inode
        file = self._files.get(inode.inode)
        new = file is None
        if file is None:
            file = self._files[inode.inode] = OpenFile(self._context, inode, self._budget, session, reply.lease)
            file.on_lost = self.on_lost
        handle = OpenHandle(file, _writable(flags), appends(flags), file.errors.sample())
        file.open_handles += 1
        file.writable_handles += handle.writable
        number = self._next
        self._next += 1
        self._handles[number] = handle
        keep = self._may_keep_pages(inode) and not file.dirty
        file.set_pages_change(inode.change)
        file.has_pages |= keep
        if isinstance(reply, pb.OpenReply) and self.kernel_attrs.differs(inode):  # a creation tells itself
            self.on_attributes_changed(inode.inode)
        if new:
            file.note_quota(reply.over_quota)  # of a file that is open for reading only, it says nothing
            return number, keep
        if session and not file.session:
            await file.start_session(inode, session, reply.lease)
            file.note_quota(reply.over_quota)
        else:
            file.apply_inode(inode)
            await self._close_unneeded(inode, session)
        return number, keep

    async def _close_unneeded(self, inode: pb.Inode, session: bytes) -> None:
        """End a session that is not needed: another open was faster."""
        if session:
            request = pb.CloseRequest(mutation=self._context.meta.mutation(), inode=inode.inode, session=session)
            try:
                await self._call(methods.CLOSE, request)
            except BaseException as error:
                self._context.session_closer.close_later(request, None, self._context.lease.number, error)
                raise
            self._context.lease.release()

    def _may_keep_pages(self, inode: pb.Inode) -> bool:
        keep = self._page_changes.get(inode.inode) == inode.change
        self._page_changes.put(inode.inode, inode.change)
        return keep

    # ---- handles ----

    def locks_lost(self, inode: int) -> None:
        """This process was silent for so long that somebody else may have had them since. What is held was written
        under them, so it is not sent, and whoever has the file open begins anew."""
        file = self._files.get(inode)
        if file is not None:
            for handle in self._handles.values():
                handle.lock_lost = handle.lock_lost or handle.file is file
            file.discard()

    def try_write(self, number: int, offset: int, data: bytes | memoryview, *, append: bool = False) -> bool:
        """False if something has to be waited for."""
        handle = self._handles[number]
        file = handle.file
        if handle.lock_lost or not self._context.lease.is_valid or not file.session:
            return False
        self._page_changes.pop(file.inode.inode, None)
        return file.try_append(data) if append else file.try_write(offset, data)

    async def write(self, number: int, offset: int, data: bytes | memoryview, *, append: bool = False) -> None:
        file = await self._writable_file(number)
        await (file.append(data) if append else file.write(offset, data))

    async def _writable_file(self, number: int) -> OpenFile:
        """With a session under a lease that has not run out."""
        handle = self._handles[number]
        file = handle.file
        self._page_changes.pop(file.inode.inode, None)
        if not self._context.lease.is_valid:
            await self._context.lease.revalidate()
        handle.check_lock()
        if not file.session:
            await self._reopen_session(file)
        return file

    async def allocate(self, number: int, offset: int, length: int, mode: int) -> None:
        await (await self._writable_file(number)).allocate(offset, length, mode)

    async def copy(self, number: int, offset: int, to: int, to_offset: int, length: int) -> int:
        destination = await self._writable_file(to)
        self._handles[number].check_lock()
        return await self._handles[number].file.copy_to(offset, destination, to_offset, length)

    async def _reopen_session(self, file: OpenFile) -> None:
        """This process was silent for so long that its sessions were ended: go on under a new one."""
        async with file.session_lock:
            if not file.session:
                request = pb.OpenRequest(
                    mutation=self._context.meta.mutation(),
                    place=paths.inode_place(file.inode.inode),
                    session=self._context.random.token(16),
                )
                reply = await self._call_with_session(methods.OPEN, request, None)
                await file.start_session(reply.inode, request.session, reply.lease)
                file.note_quota(reply.over_quota)

    async def truncate(self, number: int, length: int, caller: pb.Caller) -> pb.Inode:
        file = await self._writable_file(number)
        self._page_changes.pop(file.inode.inode, None)
        return await file.truncate(length, caller, through_handle=True)

    async def truncate_by_name(self, file: OpenFile, length: int, caller: pb.Caller) -> pb.Inode:
        """Raises SessionLost if it has no name any more."""
        try:
            return await file.truncate(length, caller, moves=self.kernel_attrs.moves(file.inode.inode))
        except NotFound:
            raise name_replaced() from None

    def release(self, number: int) -> Coroutine[Any, Any, None] | None:
        """The last descriptor of a handle is gone. With the last writer goes the session.

        If all is settled that is in no hurry: it would cost the next call of the program the time of a commit.
        """
        handle = self._handles.pop(number)
        file = handle.file
        if file.session_lock.locked() or not file.is_clean or len(self._deferred) >= _MAX_DEFERRED:
            return self._release(handle)
        file.open_handles -= 1
        file.writable_handles -= handle.writable
        if file.has_session:
            if not file.writable_handles:
                self._defer_close(file)
        elif not file.open_handles:
            file.release_now()
            self._remove(file)
        return None

    async def _release(self, handle: OpenHandle) -> None:
        file = handle.file
        async with file.session_lock:
            file.open_handles -= 1
            file.writable_handles -= handle.writable
            await self._close_file(file)

    async def _close_file(self, file: OpenFile) -> None:
        """End what nobody has open any more. Its turn is held."""
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

    # ---- sessions that nobody waits for ----

    def _defer_close(self, file: OpenFile) -> None:
        self._deferred[file.inode.inode] = file
        if len(self._deferred) >= _CLOSE_BATCH:
            self._close_deferred()
        else:
            self._schedule_close()

    def _schedule_close(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CLOSE_DELAY_S, self._close_deferred)

    def _close_deferred(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deferred and len(self._closing) < _MAX_CLOSE_BATCHES:
            files, self._deferred = self._deferred, {}
            task = self._closing.attempt("closing of files", self._close_sessions(list(files.values())))
            task.add_done_callback(self._closed)

    def _closed(self, _: object) -> None:
        if self._timer is None:  # those whose time came meanwhile
            self._close_deferred()

    async def _close_sessions(self, files: list[OpenFile]) -> None:
        """In one message and one commit."""
        ready = [file for file in files if not file.session_lock.locked()]
        for file in ready:
            await file.session_lock.acquire()
        try:
            await self._close_batch([file for file in ready if file.has_session and not file.writable_handles])
        finally:
            for file in ready:
                file.session_lock.release()
        for file in files:
            if file.has_session and not file.writable_handles:  # somebody is just opening it
                self._deferred[file.inode.inode] = file
                self._schedule_close()

    async def _close_batch(self, files: list[OpenFile]) -> None:
        """Their turns are held. All is settled: what goes wrong is tried again, and nobody has to know of it."""
        if not files:
            return
        requests = [file.close_request() for file in files]
        outcomes: Sequence[Any] = [Unavailable("it was not waited for")] * len(files)
        try:
            calls = [(methods.CLOSE, request) for request in requests]
            outcomes = await self._context.meta.send_changes(calls, timeout_s=self._context.options.timeout_s)
        except ThreefsError as error:
            outcomes = [error] * len(files)
        finally:
            for file, request, outcome in zip(files, requests, outcomes, strict=True):
                file.session_closed(request, outcome if isinstance(outcome, ThreefsError) else None)
                if not file.open_handles:
                    self._remove(file)

    async def _call(self, method: Method[Req, Rep], request: Req, caller: pb.Caller | None = None) -> Rep:
        return await self._context.meta.call(method, request, timeout_s=self._context.options.timeout_s, caller=caller)

    # ---- in the background ----

    def start(self) -> None:
        self._background.start("settling of files", self._sync_loop())

    async def _sync_loop(self) -> None:
        while True:
            await self._context.clock.sleep(SYNC_AFTER_S)
            for file in list(self._files.values()):
                if file.dirty_longer_than(SYNC_AFTER_S) and file not in self._syncing:
                    self._syncing.add(file)
                    self._background.run("settling of a file", self._sync_one(file))

    async def _sync_one(self, file: OpenFile) -> None:
        """No other file waits for it: its chains may not answer."""
        try:
            await self._logging_errors(file.sync)
        finally:
            self._syncing.discard(file)

    async def _logging_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except ThreefsError as error:
            _LOG.warning("what was written could not be stored", error=str(error))
        except Exception:
            _LOG.exception("what was written could not be stored")

    async def stop(self) -> None:
        """Store everything and end all sessions, as far as somebody answers within the time that a call may take."""
        await self._background.stop()
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(self._context.options.timeout_s):
                await self._closing.join()
                await asyncio.gather(*(self._logging_errors(file.release) for file in list(self._files.values())))
        except TimeoutError:
            left = sum(file.needs_sync for file in self._files.values())
            _LOG.error("the mount ends though not all is stored: nobody answers", files=left)


def _raise_first(*errors: Exception | None) -> None:
    for error in errors:
        if error is not None:
            raise error


def name_replaced() -> SessionLost:
    """The kernel knows the inode by a name that may stand for another one by now: with ESTALE it looks it up again."""
    return SessionLost("the name that was opened stands for another file by now")


def _writable(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY


def appends(flags: int) -> bool:
    return _writable(flags) and bool(flags & os.O_APPEND)


def open_flags(flags: int, *, keep: bool) -> OpenFlag:
    """Appends go past the kernel's cache: it would put them where it believes the end to be."""
    if appends(flags):
        return OpenFlag.DIRECT_IO
    return OpenFlag.KEEP_CACHE if keep else OpenFlag(0)


_ACCESS = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK, os.O_RDWR: os.R_OK | os.W_OK}
_EXECUTED = 0o40  # FMODE_EXEC: the kernel opens a program that way, which needs no permission to read it


def access_of(flags: int) -> int:
    """What must be permitted, as access(2) takes it."""
    return os.X_OK if flags & _EXECUTED else _ACCESS.get(flags & os.O_ACCMODE, os.R_OK | os.W_OK)
