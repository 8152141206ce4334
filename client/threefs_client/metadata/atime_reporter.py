"""Reports reads to the meta service, if the access time of the file is due (relatime).

Reports are sent in the background. Only a call that asks for the attributes of such a file, or sets its access time,
waits for its report. One call reports the files that were read within about a second, each once. A report that fails is
dropped; so are those of a process that dies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Protocol

from threefs.access_time import DAY_NS
from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb

PAUSE_S = 1.0
_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 2.0
_MAX_CALL_FILES = 256
_MAX_PENDING_FILES = 1 << 16  # reads of more files are not reported

_LOG = LibraryLogger(__name__)

Send = Callable[[pb.ReportAtimeRequest, float], Awaitable[pb.ReportAtimeReply]]


class TracksAtime(Protocol):
    """A file whose reads are reported."""

    inode: int
    atime_due_ns: int  # reads from this time on are reported


class AtimeReporter:
    """Of one client process, on its event loop. `send` makes the call within the given seconds."""

    def __init__(self, send: Send, *, enabled: bool, clock: Clock) -> None:
        self._send = send
        self._enabled = enabled
        self._clock = clock
        self._read_at: dict[int, float] = {}  # inode -> time of the last read that is not reported
        self._in_flight: list[int] = []  # the files of the call in flight
        self._call_lock = asyncio.Lock()  # one call at a time
        self._background = BackgroundTasks()
        self._report_task: asyncio.Task[None] | None = None

    def record_read(self, file: TracksAtime) -> None:
        """The file was read just now."""
        if not self._enabled:
            return
        now_ns = self._clock.wall_ns()
        if file.atime_due_ns > now_ns:
            return
        file.atime_due_ns = now_ns + DAY_NS
        if len(self._read_at) < _MAX_PENDING_FILES:
            self._read_at[file.inode] = self._clock.monotonic()
            if self._report_task is None or self._report_task.done():
                self._report_task = self._background.run("reporting of access times", self._report_later())

    def is_pending(self, inode: int) -> bool:
        """Whether a read of this file may be unreported."""
        return inode in self._read_at or inode in self._in_flight

    def pending_among(self, inodes: Sequence[int]) -> set[int]:
        """Those of the inodes whose reads may be unreported."""
        return (self._read_at.keys() & inodes) | set(inodes).intersection(self._in_flight)

    async def before_setting(self, inode: int | None = None) -> None:
        """The access time of this file is about to be set, of any file if none is named. Reads so far come before that:
        a later report of them would set another time."""
        if self.is_pending(inode) if inode is not None else self._read_at or self._in_flight:
            await self.flush()

    async def flush(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Report all reads so far. An error drops the reports and is logged."""
        try:
            await self.report(timeout_s)
        except ThreefsError as error:
            _LOG.info("access times could not be reported", error=str(error))

    async def _report_later(self) -> None:
        while self._read_at:
            await self._clock.sleep(PAUSE_S)
            try:
                await self.flush()
            except Exception:
                _LOG.exception("access times could not be reported")

    async def report(self, timeout_s: float) -> None:
        """Report all reads so far, as ages: clocks of two machines are never compared."""
        async with self._call_lock:
            while self._read_at:
                request = pb.ReportAtimeRequest()
                now = self._clock.monotonic()
                self._in_flight = list(islice(self._read_at, _MAX_CALL_FILES))
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
