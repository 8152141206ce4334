"""Closes write sessions in the background whose close was not confirmed.

All sessions and locks of a process are under one lease, so a session that stays open lives as long as the process holds
anything else. While a write session is open, a removed file keeps its space.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from threefs.background import BackgroundTasks
from threefs.backoff import Backoff
from threefs.bounded_dict import BoundedDict
from threefs.env.clock import Clock
from threefs.errors import NotFound, OutcomeUnknown, Retry, SessionLost, ThreefsError
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb
from threefs_client.metadata.lease import Lease

#: Sessions to close. If there are more, the oldest end with the lease.
MAX_UNFINISHED = 4096
#: Calls in flight for sessions that were not tried yet, and as many for the others: where a chain does not answer, a
#: meta service waits in each call.
_MAX_CALLS = 8
_MAX_LAST_CALLS = 64  # when the process ends, and for a moment only
_BACKOFF = Backoff(0.5, 30.0)
_ATTEMPT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0

_LOG = LibraryLogger(__name__)

_Key = tuple[int, bytes]
Send = Callable[[pb.CloseRequest, pb.Caller | None, float], Awaitable[pb.InodeReply]]


@dataclass(slots=True, eq=False)
class _Session:
    request: pb.CloseRequest
    caller: pb.Caller | None
    lease: int  # the number of the one that it was opened under, or 0
    failures: int = field(default=0, init=False)


class SessionCloser:
    """Of one client process, on its event loop. `send` makes the call under a new identity, within the given
    seconds."""

    def __init__(self, send: Send, lease: Lease, *, clock: Clock) -> None:
        self._send = send
        self._lease = lease
        self._clock = clock
        # Precreated files may share a session, so the inode is a part of the key.
        self._unfinished = BoundedDict[_Key, _Session](MAX_UNFINISHED)
        self._first_calls = asyncio.Semaphore(_MAX_CALLS)  # which do not wait behind sessions that cannot be closed
        self._further_calls = asyncio.Semaphore(_MAX_CALLS)
        self._background = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._unfinished)

    def close_later(self, request: pb.CloseRequest, caller: pb.Caller | None, lease: int, error: BaseException) -> None:
        """Closing failed with `error`, so the session may still be open. It was opened under the lease of that number
        (0: not known), which is released when the session has ended."""
        if isinstance(error, SessionLost | NotFound):
            self._lease.release()
            return
        key, session = (request.inode, request.session), _Session(request, caller, lease)
        evicted = self._unfinished.put(key, session)
        if evicted is not None:
            _LOG.warning(
                "a write session stays open until the lease expires: too many could not be closed",
                inode=evicted[0][0],
            )
            self._lease.release()
        self._background.run("closing of a write session", self._retry(key, session))

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

    async def _retry(self, key: _Key, session: _Session) -> None:
        """Each session has pauses of its own: a chain of one file may not answer for long, and no other waits for
        it."""
        while self._is_unfinished(key, session):
            await self._clock.sleep(_BACKOFF.limit_s(session.failures))
            async with self._further_calls if session.failures else self._first_calls:
                await self._try(key, session, _ATTEMPT_TIMEOUT_S)

    async def _try(self, key: _Key, session: _Session, timeout_s: float) -> None:
        if not self._is_unfinished(key, session):
            return
        request = session.request
        if not session.lease or session.lease >= self._lease.number:  # else the session has ended with its lease
            try:
                await self._send(request, session.caller, timeout_s)
            except (SessionLost, NotFound):
                pass
            except ThreefsError as error:
                _LOG.info("a write session could not be closed now", inode=request.inode, error=str(error))
                session.failures += 1
                return
            except Exception:
                _LOG.exception("a write session could not be closed", inode=request.inode)
        if self._is_unfinished(key, session):
            self._forget(key)

    def _is_unfinished(self, key: _Key, session: _Session) -> bool:
        """Whether it has not had to make room meanwhile."""
        return self._unfinished.get(key) is session

    def _forget(self, key: _Key) -> None:
        del self._unfinished[key]
        self._lease.release()

    async def close(self) -> None:
        """Try each once more; sessions that are still open end with the lease."""
        await self._background.stop()
        slots = asyncio.Semaphore(_MAX_LAST_CALLS)

        async def try_last(key: _Key, session: _Session) -> None:
            async with slots:
                await self._try(key, session, _CLOSE_TIMEOUT_S)

        # Those that have failed most often would take the time of the others.
        left = sorted(self._unfinished.items(), key=lambda item: item[1].failures)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.gather(*(try_last(key, session) for key, session in left))
        except TimeoutError:
            pass
        for key in list(self._unfinished):
            self._forget(key)
