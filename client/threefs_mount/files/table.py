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
from threefs_mount.room import Room

#: What programs have written is sent and settled by itself after this while.
SETTLE_S = 1.0
#: Of files that are closed, we know for this many what the kernel still has of their content.
_KEPT_FILES = 65_536
#: Sessions that nobody waits for end together: after this while, or when there are so many.
LINGER_S = 0.1
_TOGETHER = 64
#: With so many, whoever closes waits.
_MOST_LINGERING = 256
_MOST_ENDING = 2  # rounds at once

_LOG = structlog.get_logger()

Opened = TypeVar("Opened", pb.OpenReply, pb.CreateReply)


@dataclass(slots=True)
class OpenHandle:
    """One open file description of a program. (`dup` and `fork` share it, the kernel does not tell.)"""

    file: OpenFile
    writable: bool
    appends: bool
    seen: int  # errors of writing that it was told of, see errseq.py
    lost: bool = False  # when it was open a lock on the file was lost

    def check(self) -> None:
        """Raises LockLost."""
        if self.lost:
            raise LockLost()

    async def sync(self) -> None:
        """For fsync: all is durable. Raises also what this handle was not told of yet, which it is then."""
        failure = await self._settled()
        self.seen, lost = self.file.errors.tell(self.seen)
        self.check()
        _raise_first(lost, failure)

    async def flush(self) -> None:
        """For close: the same, but fsync tells it once more."""
        failure = await self._settled()
        self.check()
        _raise_first(self.file.errors.since(self.seen), failure)

    async def settle(self) -> None:
        """All is durable, as far as it can be; what is lost is told by `sync` and `flush`."""
        await self._settled()

    async def _settled(self) -> ThreefsError | None:
        """Who stops waiting does not stop it. What is lost is in the file's errors, also if it is not waited for."""
        try:
            await asyncio.shield(asyncio.ensure_future(self.file.settle()))
        except ThreefsError as error:
            return error
        return None

    @property
    def unsettled(self) -> bool:
        """`flush` has something to do or to say."""
        return self.lost or self.file.unsettled or self.file.errors.since(self.seen) is not None


class OpenFileTable:
    def __init__(self, link: ClientContext, held_bytes: int, cache_s: float) -> None:
        self.told = KernelAttrCache(cache_s)
        self._link = link
        self._files: dict[int, OpenFile] = {}
        self._handles: dict[int, OpenHandle] = {}
        self._next = 1
        self._room = Room(held_bytes, self._files)
        self._kept = BoundedDict[int, int](_KEPT_FILES)  # inode: the change as of which the kernel has its content
        self.changed: Callable[[int], None] = lambda inode: None
        self.lost: Callable[[int], None] = lambda inode: None  # what the kernel has of its content may not be stored
        self.touched: Callable[[int], None] = lambda inode: None  # what was known of it before is not so any more
        self._background = BackgroundTasks()
        self._settling: set[OpenFile] = set()
        self._lingering: dict[int, OpenFile] = {}  # without writers, but with a session
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    # ---- looking ----

    def get(self, inode: int) -> OpenFile | None:
        return self._files.get(inode)

    def among(self, inodes: Iterable[int]) -> set[int]:
        """Which of them are open here."""
        return self._files.keys() & inodes

    def place(self, inode: int) -> pb.Place:
        """Where nobody here has it open, the kernel has found it by its name."""
        if inode in self._files:
            return pb.Place(base=inode)
        return pb.Place(base=inode, named=True, moves=self.told.moves(inode))

    def handle(self, number: int) -> OpenHandle:
        return self._handles[number]

    def shown(self, inode: pb.Inode, *, named: bool = True) -> pb.Inode:
        """With what has been written here and is not known elsewhere: what the kernel is about to be told, under a name
        or only of its attributes."""
        file = self._files.get(inode.inode)
        if file is not None:
            inode = file.shown(inode)
        self.touched(inode.inode)
        self.told.note(inode, self._link.clock.monotonic(), named=named)
        return inode

    def with_pages(self) -> list[OpenFile]:
        """Those that are open, and of which the kernel may keep pages."""
        return [file for file in self._files.values() if file.holders and file.has_pages]

    # ---- opening ----

    async def open(self, inode: int, flags: int, caller: pb.Caller) -> tuple[int, bool]:
        """(number of the handle, whether the kernel may go on with the content that it has).

        `changed` is told if the file has other attributes than the kernel knows.
        """
        file = self._files.get(inode)
        if file is None:
            return await self._open(inode, flags, caller, None)
        async with file.turn:
            if flags & os.O_TRUNC:
                await file.send()
            return await self._open(inode, flags, caller, file)

    async def _open(self, inode: int, flags: int, caller: pb.Caller, file: OpenFile | None) -> tuple[int, bool]:
        needs_session = _writable(flags) and (file is None or not file.session)
        session = self._link.random.token(16) if needs_session else b""
        request = pb.OpenRequest(
            place=pb.Place(base=inode, moves=self.told.moves(inode)),
            session=session,
            truncate=bool(flags & os.O_TRUNC),
            access=access_of(flags),
        )
        if session or request.truncate:
            request.mutation.CopyFrom(self._link.meta.mutation())
        try:
            reply = await self._begin(methods.OPEN, request, caller)
        except NotFound:
            raise replaced() from None
        if not reply.inode.nlink:
            await self._give_up(reply.inode, session)
            raise replaced()
        return await self._admit(reply, session, flags)

    async def create(self, request: pb.CreateRequest, flags: int, caller: pb.Caller) -> tuple[int, pb.CreateReply]:
        """Make a file and open it: its handle, and what was answered. The request lacks only its session."""
        request.session = self._link.random.token(16)
        reply = await self._begin(methods.CREATE, request, caller)
        number, _ = await self._admit(reply, request.session, flags)
        return number, reply

    async def _begin(self, method: Method[Any, Opened], request: Any, caller: pb.Caller | None) -> Opened:
        """Call, and take note of the session if the call opens one."""
        if not request.session:
            return await self._call(method, request, caller)
        lease = self._link.lease
        await lease.acquire()
        try:
            reply = await self._call(method, request, caller)
        except BaseException:
            lease.release()
            raise
        lease.granted(reply.lease)
        return reply

    async def _admit(self, reply: Opened, session: bytes, flags: int) -> tuple[int, bool]:
        inode = reply.inode
        file = self._files.get(inode.inode)
        new = file is None
        if file is None:
            file = self._files[inode.inode] = OpenFile(self._link, inode, self._room, session, reply.lease)
            file.lost = self.lost
        handle = OpenHandle(file, _writable(flags), appends(flags), file.errors.sample())
        file.holders += 1
        file.writers += handle.writable
        number = self._next
        self._next += 1
        self._handles[number] = handle
        keep = self._keeps(inode) and not file.dirty
        file.pages_are_of(inode.change)
        file.has_pages |= keep
        if isinstance(reply, pb.OpenReply) and self.told.is_news(inode):  # a creation tells itself
            self.changed(inode.inode)
        if new:
            file.note_quota(reply.over_quota)  # of a file that is open for reading only, it says nothing
            return number, keep
        if session and not file.session:
            await file.begin(inode, session, reply.lease)
            file.note_quota(reply.over_quota)
        else:
            file.learn(inode)
            await self._give_up(inode, session)
        return number, keep

    async def _give_up(self, inode: pb.Inode, session: bytes) -> None:
        """End a session that is not needed: another open was faster."""
        if session:
            request = pb.CloseRequest(mutation=self._link.meta.mutation(), inode=inode.inode, session=session)
            try:
                await self._call(methods.CLOSE, request)
            except BaseException as error:
                self._link.session_closer.close_later(request, None, self._link.lease.number, error)
                raise
            self._link.lease.release()

    def _keeps(self, inode: pb.Inode) -> bool:
        keep = self._kept.get(inode.inode) == inode.change
        self._kept.put(inode.inode, inode.change)
        return keep

    # ---- handles ----

    def locks_lost(self, inode: int) -> None:
        """This process was silent for so long that somebody else may have had them since. What is held was written
        under them, so it is not sent, and whoever has the file open begins anew."""
        file = self._files.get(inode)
        if file is not None:
            for handle in self._handles.values():
                handle.lost = handle.lost or handle.file is file
            file.discard()

    def write_at_once(self, number: int, offset: int, data: bytes | memoryview, *, append: bool = False) -> bool:
        """False if something has to be waited for."""
        handle = self._handles[number]
        file = handle.file
        if handle.lost or not self._link.lease.is_valid or not file.session:
            return False
        self._kept.pop(file.inode.inode, None)
        return file.append_at_once(data) if append else file.write_at_once(offset, data)

    async def write(self, number: int, offset: int, data: bytes | memoryview, *, append: bool = False) -> None:
        file = await self._for_writing(number)
        await (file.append(data) if append else file.write(offset, data))

    async def _for_writing(self, number: int) -> OpenFile:
        """With a session under a lease that has not run out."""
        handle = self._handles[number]
        file = handle.file
        self._kept.pop(file.inode.inode, None)
        if not self._link.lease.is_valid:
            await self._link.lease.revalidate()
        handle.check()
        if not file.session:
            await self._renew(file)
        return file

    async def allocate(self, number: int, offset: int, length: int, mode: int) -> None:
        await (await self._for_writing(number)).allocate(offset, length, mode)

    async def copy(self, number: int, offset: int, to: int, to_offset: int, length: int) -> int:
        destination = await self._for_writing(to)
        self._handles[number].check()
        return await self._handles[number].file.copy_to(offset, destination, to_offset, length)

    async def _renew(self, file: OpenFile) -> None:
        """This process was silent for so long that its sessions were ended: go on under a new one."""
        async with file.turn:
            if not file.session:
                request = pb.OpenRequest(
                    mutation=self._link.meta.mutation(),
                    place=paths.inode_place(file.inode.inode),
                    session=self._link.random.token(16),
                )
                reply = await self._begin(methods.OPEN, request, None)
                await file.begin(reply.inode, request.session, reply.lease)
                file.note_quota(reply.over_quota)

    async def truncate(self, number: int, length: int, caller: pb.Caller) -> pb.Inode:
        file = await self._for_writing(number)
        self._kept.pop(file.inode.inode, None)
        return await file.truncate(length, caller, through_handle=True)

    async def truncate_by_name(self, file: OpenFile, length: int, caller: pb.Caller) -> pb.Inode:
        """Raises SessionLost if it has no name any more."""
        try:
            return await file.truncate(length, caller, moves=self.told.moves(file.inode.inode))
        except NotFound:
            raise replaced() from None

    def release(self, number: int) -> Coroutine[Any, Any, None] | None:
        """The last descriptor of a handle is gone. With the last writer goes the session.

        If all is settled that is in no hurry: it would cost the next call of the program the time of a commit.
        """
        handle = self._handles.pop(number)
        file = handle.file
        if file.turn.locked() or not file.at_rest or len(self._lingering) >= _MOST_LINGERING:
            return self._release(handle)
        file.holders -= 1
        file.writers -= handle.writable
        if file.has_session:
            if not file.writers:
                self._linger(file)
        elif not file.holders:
            file.leave_at_once()
            self._drop(file)
        return None

    async def _release(self, handle: OpenHandle) -> None:
        file = handle.file
        async with file.turn:
            file.holders -= 1
            file.writers -= handle.writable
            await self._leave(file)

    async def _leave(self, file: OpenFile) -> None:
        """End what nobody has open any more. Its turn is held."""
        try:
            if not file.holders:
                await file.leave()
            elif not file.writers and file.session:
                await file.end()
        finally:
            if not file.holders:
                self._drop(file)

    def _drop(self, file: OpenFile) -> None:
        if self._files.get(file.inode.inode) is file:
            del self._files[file.inode.inode]
            self.touched(file.inode.inode)

    # ---- sessions that nobody waits for ----

    def _linger(self, file: OpenFile) -> None:
        self._lingering[file.inode.inode] = file
        if len(self._lingering) >= _TOGETHER:
            self._end_lingering()
        else:
            self._end_later()

    def _end_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._end_lingering)

    def _end_lingering(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lingering and len(self._ending) < _MOST_ENDING:
            files, self._lingering = self._lingering, {}
            task = asyncio.get_running_loop().create_task(self._end_all(list(files.values())))
            self._ending.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        if self._timer is None:  # those whose time came meanwhile
            self._end_lingering()

    async def _end_all(self, files: list[OpenFile]) -> None:
        """In one message and one commit."""
        ready = [file for file in files if not file.turn.locked()]
        for file in ready:
            await file.turn.acquire()
        try:
            await self._end_together([file for file in ready if file.has_session and not file.writers])
        finally:
            for file in ready:
                file.turn.release()
        for file in files:
            if file.has_session and not file.writers:  # somebody is just opening it
                self._lingering[file.inode.inode] = file
                self._end_later()

    async def _end_together(self, files: list[OpenFile]) -> None:
        """Their turns are held. All is settled: what goes wrong is tried again, and nobody has to know of it."""
        if not files:
            return
        requests = [file.ending() for file in files]
        outcomes: Sequence[Any] = [Unavailable("it was not waited for")] * len(files)
        try:
            calls = [(methods.CLOSE, request) for request in requests]
            outcomes = await self._link.meta.send_changes(calls, timeout_s=self._link.options.timeout_s)
        except ThreefsError as error:
            outcomes = [error] * len(files)
        finally:
            for file, request, outcome in zip(files, requests, outcomes, strict=True):
                file.ended(request, outcome if isinstance(outcome, ThreefsError) else None)
                if not file.holders:
                    self._drop(file)

    async def _call(self, method: Method[Req, Rep], request: Req, caller: pb.Caller | None = None) -> Rep:
        return await self._link.meta.call(method, request, timeout_s=self._link.options.timeout_s, caller=caller)

    # ---- in the background ----

    def start(self) -> None:
        self._background.start("settling of files", self._tick())

    async def _tick(self) -> None:
        while True:
            await self._link.clock.sleep(SETTLE_S)
            for file in list(self._files.values()):
                if file.waits_long(SETTLE_S) and file not in self._settling:
                    self._settling.add(file)
                    self._background.run("settling of a file", self._settle_one(file))

    async def _settle_one(self, file: OpenFile) -> None:
        """No other file waits for it: its chains may not answer."""
        try:
            await self._try(file.settle)
        finally:
            self._settling.discard(file)

    async def _try(self, job: Callable[[], Awaitable[None]]) -> None:
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
            async with asyncio.timeout(self._link.options.timeout_s):
                while self._ending:
                    await asyncio.gather(*self._ending, return_exceptions=True)
                await asyncio.gather(*(self._try(file.leave) for file in list(self._files.values())))
        except TimeoutError:
            left = sum(file.unsettled for file in self._files.values())
            _LOG.error("the mount ends though not all is stored: nobody answers", files=left)


def _raise_first(*errors: Exception | None) -> None:
    for error in errors:
        if error is not None:
            raise error


def replaced() -> SessionLost:
    """The kernel knows the inode by a name that may stand for another one by now: with ESTALE it looks it up again."""
    return SessionLost("the name that was opened stands for another file by now")


def _writable(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY


def appends(flags: int) -> bool:
    return _writable(flags) and bool(flags & os.O_APPEND)


def treatment(flags: int, *, keep: bool) -> OpenFlag:
    """Appends go past the kernel's cache: it would put them where it believes the end to be."""
    if appends(flags):
        return OpenFlag.DIRECT_IO
    return OpenFlag.KEEP_CACHE if keep else OpenFlag(0)


_ACCESS = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK, os.O_RDWR: os.R_OK | os.W_OK}
_EXECUTED = 0o40  # FMODE_EXEC: the kernel opens a program that way, which needs no permission to read it


def access_of(flags: int) -> int:
    """What must be permitted, as access(2) takes it."""
    return os.X_OK if flags & _EXECUTED else _ACCESS.get(flags & os.O_ACCMODE, os.R_OK | os.W_OK)
