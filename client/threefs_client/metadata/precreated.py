"""Precreated files of a client: without names, each kept by a write session, ready to be filled and published.

They come from the meta service many in one call, twice as many each time up to a bound. So a program that writes one
file makes one ahead, and one that writes thousands pays a sixty-fourth of a commit for each. What is not used for a
while is given back, because it keeps the lease of this process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.env.random import Random
from threefs.env.shielded_wait import shielded
from threefs.errors import OutcomeUnknown, ProtocolError, SessionLost, ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_client.metadata.lease import Lease
from threefs_client.metadata.session_closer import SessionCloser

#: The most that the meta service makes in one call.
MAX_FILES = 64
#: Unused for that long, all of them are given back.
IDLE_S = 2.0
#: Directories of which the layout of new files is remembered.
_MAX_DIRECTORIES = 1024

#: Chunk size, chain table and stripe: a precreated file can be published where new files have the same.
Shape = tuple[int, int, int]

#: Makes the call, for a caller.
Precreate = Callable[[pb.PrecreateRequest, pb.Caller | None], Awaitable[pb.PrecreateReply]]
#: Ends the sessions in one message; returns the reply or the error of each.
CloseAll = Callable[[Sequence[pb.CloseRequest]], Awaitable[Sequence[Any]]]


class Precreated(NamedTuple):
    inode: pb.Inode
    session: bytes
    lease: int  # the number of the lease under which the session stands


class PrecreatedFiles:
    """Of one client process, on its event loop. Each file is one holder of the lease."""

    def __init__(
        self,
        precreate: Precreate,
        close_all: CloseAll,
        lease: Lease,
        session_closer: SessionCloser,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._precreate = precreate
        self._close_all = close_all
        self._lease = lease
        self._session_closer = session_closer
        self._clock = clock
        self._random = random
        self._ready: dict[Shape, list[Precreated]] = {}
        self._shapes = BoundedDict[bytes, Shape](_MAX_DIRECTORIES)  # by the path of the directory
        self._last: Shape = (0, 0, 0)  # of the last call, which is a guess for other directories
        self._count = 1  # of the next call
        self._waiting = 0
        self._calling = asyncio.Lock()
        self._calls: set[asyncio.Future[None]] = set()
        self._was_used = False
        self._background = BackgroundTasks()
        self._idle_task: asyncio.Task[None] | None = None
        lease.on_lost.append(self._on_lost)

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    async def take(self, path: bytes, caller: pb.Caller | None, wanted: int = 1) -> Precreated:
        """A file that can be published at that path, as far as is known. The caller publishes it and releases the
        lease, or calls `give_up`. It will take `wanted` files, with this one."""
        self._was_used = True
        directory = path.rpartition(b"/")[0]
        while True:
            ready = self._ready.get(self._shapes.get(directory, self._last))
            if ready:
                return ready.pop()
            self._waiting += 1
            try:
                async with self._calling:
                    if not self._ready.get(self._shapes.get(directory, self._last)):
                        await self._call(path, caller, wanted)
            finally:
                self._waiting -= 1

    async def learn(self, path: bytes, caller: pb.Caller | None) -> None:
        """New files at that path have another layout than was thought: ask the meta service."""
        async with self._calling:
            await self._call(path, caller, 1)

    async def _call(self, path: bytes, caller: pb.Caller | None, wanted: int) -> None:
        """Have some made for that path. If this is cancelled the call goes on, because the files would stay until the
        lease ends if their numbers were not received."""
        call = asyncio.ensure_future(self._make(path, caller, max(wanted, self._waiting)))
        self._calls.add(call)
        call.add_done_callback(self._call_ended)
        await shielded(call)

    def _call_ended(self, call: "asyncio.Future[None]") -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # its waiters have raised it, or were cancelled

    async def _make(self, path: bytes, caller: pb.Caller | None, wanted: int) -> None:
        count = min(max(self._count, wanted), MAX_FILES)
        session = self._random.token(16)
        request = pb.PrecreateRequest(place=pb.Place(path=path), count=count, session=session)
        held = 0
        try:
            while held < count:
                await self._lease.acquire()
                held += 1
            reply = await self._precreate(request, caller)
            if len(reply.inodes) != count:
                raise ProtocolError(f"the meta service has made {len(reply.inodes)} files ahead of time, not {count}")
        except BaseException:
            self._release(held)
            raise
        self._lease.granted(reply.lease)
        if reply.lease < self._lease.number:  # the first answer, repeated: the files have gone with that lease
            self._release(held)
            return
        layout = reply.inodes[0].layout
        self._last = layout.chunk_bytes, layout.table_id, layout.stripe
        self._shapes.put(path.rpartition(b"/")[0], self._last)
        ready = self._ready.setdefault(self._last, [])
        ready += [Precreated(inode, session, reply.lease) for inode in reversed(reply.inodes)]
        self._count = min(2 * count, MAX_FILES)
        if self._idle_task is None or self._idle_task.done():
            self._idle_task = self._background.run("return of precreated files", self._return_when_idle())

    def give_up(self, file: Precreated, request: pb.CloseRequest, caller: pb.Caller | None, why: BaseException) -> None:
        """A file that was taken will not be published: end its session, so that it is removed."""
        error = why if isinstance(why, SessionLost) else OutcomeUnknown("the file was not published")
        self._session_closer.close_later(request, caller, file.lease, error)

    def _on_lost(self) -> None:
        self._release(len(self))
        self._ready.clear()

    def _release(self, count: int) -> None:
        for _ in range(count):
            self._lease.release()

    async def _return_when_idle(self) -> None:
        while self._ready:
            self._was_used = False
            await self._clock.sleep(IDLE_S)
            if not self._was_used:
                await self._return_all()

    async def _return_all(self) -> None:
        files = [file for ready in self._ready.values() for file in ready]
        self._ready.clear()
        self._count = 1
        requests = [pb.CloseRequest(inode=file.inode.inode, session=file.session) for file in files]
        for start in range(0, len(files), MAX_FILES):
            part = requests[start : start + MAX_FILES]
            outcomes: Sequence[Any] = [OutcomeUnknown("the call was cancelled")] * len(part)
            try:
                outcomes = await self._close_all(part)
            except ThreefsError as error:
                outcomes = [error] * len(part)
            finally:
                for file, request, outcome in zip(files[start:], part, outcomes, strict=False):
                    if isinstance(outcome, ThreefsError):
                        self._session_closer.close_later(request, None, file.lease, outcome)
                    else:
                        self._lease.release()

    async def close(self) -> None:
        """Give them back. What cannot be given back now goes with the lease."""
        await self._background.stop()
        await cancel_and_wait(*self._calls)
        await self._return_all()
