"""Tells the meta service which files were read, when their access times are due.

Nobody waits for that, but who asks for the access time of such a file. What was read within a second or so goes in one
call, each file at most once; what cannot be told is given up, as it is lost when this process dies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Protocol

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.relatime import DAY_NS
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb

PAUSE_S = 1.0
_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 2.0
_PAGE = 256  # files in one call
_MAX_FILES = 1 << 16  # that wait; others are not told of

_LOG = LibraryLogger(__name__)

Send = Callable[[pb.ReportAtimeRequest, float], Awaitable[pb.ReportAtimeReply]]


class TracksAtime(Protocol):
    """A file that is read."""

    inode: int
    atime_due_ns: int  # from when on a read is to be told


class AtimeReporter:
    """Of one client process, on its event loop. `send` makes the call, in so many seconds at most."""

    def __init__(self, send: Send, *, enabled: bool, clock: Clock) -> None:
        self._send = send
        self._enabled = enabled
        self._clock = clock
        self._read_at: dict[int, float] = {}
        self._in_flight: list[int] = []  # the files of the call that is under way
        self._call_lock = asyncio.Lock()  # one at a time
        self._background = BackgroundTasks()
        self._report_task: asyncio.Task[None] | None = None

    def record_read(self, file: TracksAtime) -> None:
        """It was read just now."""
        if not self._enabled:
            return
        now_ns = self._clock.wall_ns()
        if file.atime_due_ns > now_ns:
            return
        file.atime_due_ns = now_ns + DAY_NS
        if len(self._read_at) < _MAX_FILES:
            self._read_at[file.inode] = self._clock.monotonic()
            if self._report_task is None or self._report_task.done():
                self._report_task = self._background.run("telling of access times", self._report_later())

    def is_pending(self, inode: int) -> bool:
        """Whether the meta service may not know yet that this file was read."""
        return inode in self._read_at or inode in self._in_flight

    def pending_among(self, inodes: Sequence[int]) -> set[int]:
        """For which of them that is so."""
        return (self._read_at.keys() & inodes) | set(inodes).intersection(self._in_flight)

    async def flush(self, timeout_s: float = _TIMEOUT_S) -> None:
        """What was read so far is told when this returns, or given up."""
        try:
            await self.report(timeout_s)
        except ThreefsError as error:
            _LOG.info("access times could not be told", error=str(error))

    async def _report_later(self) -> None:
        while self._read_at:
            await self._clock.sleep(PAUSE_S)
            try:
                await self.flush()
            except Exception:
                _LOG.exception("access times could not be told")

    async def report(self, timeout_s: float) -> None:
        """All that is known. How long ago counts: clocks of two machines are not compared."""
        async with self._call_lock:
            while self._read_at:
                request = pb.ReportAtimeRequest()
                now = self._clock.monotonic()
                self._in_flight = list(islice(self._read_at, _PAGE))
                for inode in self._in_flight:
                    request.inode.append(inode)
                    request.ago_ms.append(max(0, int((now - self._read_at.pop(inode)) * 1e3)))
                try:
                    await self._send(request, timeout_s)
                finally:
                    self._in_flight = []

    async def close(self) -> None:
        await self._background.stop()
        await self.flush(_CLOSE_TIMEOUT_S)
