"""Closes write sessions in the background whose close was not confirmed.

All sessions and locks of a process are under one lease, so a session that stays open lives as long as the process holds
anything else. While a write session is open, a removed file keeps its space.
"""

import asyncio
from collections.abc import Awaitable, Callable

from threefs.background import BackgroundTasks
from threefs.backoff import Backoff
from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.errors import NotFound, OutcomeUnknown, Retry, SessionLost, ThreefsError
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb
from threefs_client.metadata.lease import Lease

#: Sessions to close. If there are more, those that were not tried for the longest time end with the lease.
MAX_UNFINISHED = 4096
_BACKOFF = Backoff(0.5, 30.0)
_ATTEMPT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0

_LOG = LibraryLogger(__name__)

_Key = tuple[int, bytes]
Send = Callable[[pb.CloseRequest, pb.Caller | None, float], Awaitable[pb.InodeReply]]


class SessionCloser:
    """Of one client process, on its event loop. `send` makes the call under a new identity, within the given
    seconds."""

    def __init__(self, send: Send, lease: Lease, *, clock: Clock) -> None:
        self._send = send
        self._lease = lease
        self._clock = clock
        # (inode, session) -> (request, caller, number of the lease); precreated files may share a session
        self._unfinished = BoundedDict[_Key, tuple[pb.CloseRequest, pb.Caller | None, int]](MAX_UNFINISHED)
        self._background = BackgroundTasks()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._unfinished)

    def close_later(self, request: pb.CloseRequest, caller: pb.Caller | None, lease: int, error: BaseException) -> None:
        """Closing failed with `error`, so the session may still be open. It was opened under the lease of that number
        (0: not known), which is released when the session has ended."""
        if isinstance(error, SessionLost | NotFound):
            self._lease.release()
            return
        evicted = self._unfinished.put((request.inode, request.session), (request, caller, lease))
        if evicted is not None:
            _LOG.warning(
                "a write session stays open until the lease expires: too many could not be closed",
                inode=evicted[0][0],
            )
            self._lease.release()
        if self._task is None or self._task.done():
            self._task = self._background.run("closing of write sessions", self._retry())

    def close_if_opened(self, find: Callable[[], Awaitable[int]], session: bytes, caller: pb.Caller | None) -> None:
        """The call that opens a session was cancelled, or its outcome is unknown. `find` returns the inode number."""
        self._background.run("search for a write session", self._close_if_opened(find, session, caller))

    async def _close_if_opened(
        self, find: Callable[[], Awaitable[int]], session: bytes, caller: pb.Caller | None
    ) -> None:
        failures = 0
        while True:
            try:
                inode = await find()  # at once, because the file may be removed soon
                break
            except ThreefsError as error:
                if failures and error.retry is Retry.NEVER:
                    return  # there is no file
            await self._clock.sleep(_BACKOFF.limit_s(failures))  # so that a request on its way arrives
            failures += 1
        try:
            await self._lease.acquire()
        except ThreefsError:
            return  # the session ends with the lease
        request = pb.CloseRequest(inode=inode, session=session)
        # The service may have begun a lease with that call, of which nobody has heard here.
        self.close_later(request, caller, 0, OutcomeUnknown("the session may have been opened"))

    async def _retry(self) -> None:
        failures = 0  # rounds in which no session was closed
        while self._unfinished:
            await self._clock.sleep(_BACKOFF.limit_s(failures))
            before = len(self._unfinished)
            await self._try_all(_ATTEMPT_TIMEOUT_S)
            failures = 0 if len(self._unfinished) < before else failures + 1

    async def _try_all(self, timeout_s: float) -> None:
        """Close one after the other. The first one that cannot be closed ends the round, and is the last of the next: a
        chain of its file may not answer for long."""
        for key, (request, caller, lease) in list(self._unfinished.items()):
            if not lease or lease >= self._lease.number:  # else the session has ended with its lease
                try:
                    await self._send(request, caller, timeout_s)
                except (SessionLost, NotFound):
                    pass
                except ThreefsError as error:
                    _LOG.info("a write session could not be closed now", inode=request.inode, error=str(error))
                    if key in self._unfinished:  # else it had to make room meanwhile
                        self._unfinished.move_to_end(key)
                    return
                except Exception:
                    _LOG.exception("a write session could not be closed", inode=request.inode)
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        if self._unfinished.pop(key, None) is not None:
            self._lease.release()

    async def close(self) -> None:
        """Try once more; sessions that are still open end with the lease."""
        await self._background.stop()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._try_all(_CLOSE_TIMEOUT_S)
        except TimeoutError:
            pass
        for key in list(self._unfinished):
            self._forget(key)
