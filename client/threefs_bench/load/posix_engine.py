"""The engine `posix`: system calls on the files of any directory, each slot in a thread of its own.

A slot is one blocking loop on one page-aligned buffer, as with fio's engine psync.
"""

import asyncio
import contextlib
import mmap
import os

from threefs.env.clock import CLOCK
from threefs.env.loop_thread import new_lock
from threefs.env.process_tuning import raise_descriptor_limit
from threefs.env.worker_threads import StopFlag, ThreadWorker
from threefs.errors import InvalidArgument, ThreefsError
from threefs_bench.load import verify
from threefs_bench.load.load_engine import (
    LAYOUT_BYTES,
    Assignment,
    Progress,
    check_room,
    fill,
    laid_out_generation,
    layout_rows,
)
from threefs_bench.load.tally import Tally
from threefs_bench.load.turns import Turn, Turns, Window

_SYNCS = {"fsync": os.fsync, "fdatasync": os.fdatasync}
_NOT_CACHED = os.O_DIRECT
#: Descriptors that are left for what is not a file of the job.
_SPARE_FILES = 64


class PosixEngine:
    def __init__(self, part: Assignment) -> None:
        self.tallies: list[Tally] = []
        self._part = part
        self._job = part.job
        self._paths = part.paths()
        self._files: list[int] = []
        self._buffers: list[memoryview] = []  # of the slots, filled before the run, so that it is not measured
        self._ledger = part.ledger()
        self._lock = new_lock()
        self._stop = StopFlag()
        self._turns: Turns | None = None
        self._stopped = False
        self._threads = ThreadWorker("load", threads=part.job.slots)

    async def prepare(self, progress: Progress) -> None:
        await self._threads.run(self._prepare, progress)

    def _prepare(self, progress: Progress) -> None:
        raise_descriptor_limit()
        room = os.sysconf("SC_OPEN_MAX") - _SPARE_FILES
        if len(self._paths) > room:
            raise InvalidArgument(
                f"nrfiles={len(self._paths)} files cannot be open at once, only {room}: raise `ulimit -n`, or divide "
                "them among more processes with numjobs"
            )
        for number, path in enumerate(self._paths):
            if self._stopped:
                return
            if self._job.reads:
                self._lay_out(number, path, progress)
            self._files.append(self._open(path))
        for _ in range(self._job.slots):
            self._buffers.append(memoryview(mmap.mmap(-1, self._job.block_sizes[-1])))
            fill(self._buffers[-1])

    def _open(self, path: str) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR | os.O_CREAT if self._job.writes else os.O_RDONLY)
        file = os.open(path, flags | (_NOT_CACHED if self._job["direct"] else 0), 0o644)
        if self._job["invalidate"]:
            with contextlib.suppress(OSError):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return file

    def _lay_out(self, number: int, path: str, progress: Progress) -> None:
        """Write the file that is to be read, unless it is there with all its bytes."""
        length = 0
        with contextlib.suppress(FileNotFoundError):
            length = os.stat(path).st_size
        if length >= self._job.file_bytes:
            return
        room = os.statvfs(os.path.dirname(path))
        check_room(path, self._job.file_bytes - length, room.f_bavail * room.f_frsize)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        view = memoryview(bytearray(max(LAYOUT_BYTES, self._job.block_sizes[-1])))
        fill(view)
        try:
            for row in layout_rows(self._job, number):
                if self._stopped:
                    return
                if self._ledger is not None:
                    verify.stamp(view[: row[2]], number, row[1], laid_out_generation(self._job, self._ledger, row))
                _write_all(file, view[: row[2]], row[1])
                progress(row[2])
            os.fsync(file)
        finally:
            os.close(file)

    async def run(self, window: Window) -> None:
        turns = self._turns = self._part.turns(window, self._ledger)
        turns.stopped = self._stopped
        self.tallies = [Tally(window.begin_s) for _ in range(self._job.slots)]
        pairs = zip(self.tallies, self._buffers, strict=False)  # a stop in `prepare` leaves buffers out
        slots = (self._threads.run(self._slot, turns, tally, view) for tally, view in pairs)
        ended = await asyncio.gather(*slots, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome

    def _slot(self, turns: Turns, tally: Tally, view: memoryview) -> None:
        """Body of a thread."""
        try:
            while True:
                now_s = CLOCK.monotonic()
                with self._lock:
                    turn = turns.take(now_s)
                if turn is None or (turn.start_s > now_s and self._stop.wait(turn.start_s - now_s)):
                    return
                if not turn.rows:
                    tally.last_s = turn.start_s
                    return
                self._do(turn, view, tally)
                if self._ledger is not None:
                    with self._lock:
                        turns.end(turn)
        finally:
            turns.stopped = True

    def _do(self, turn: Turn, view: memoryview, tally: Tally) -> None:
        try:
            (self._write if turn.is_write else self._read)(turn, view, tally)
        except OSError as error:
            if error.filename is None and not isinstance(error, ThreefsError):  # of a descriptor, which has no name
                error.filename = self._paths[turn.rows[0][0]]
            raise

    def _read(self, turn: Turn, view: memoryview, tally: Tally, kind: str = "read") -> None:
        ((number, offset, length),) = turn.rows
        part = view[:length]
        began_s = CLOCK.monotonic()
        got = os.preadv(self._files[number], (part,), offset)
        ended_s = CLOCK.monotonic()
        tally.add(kind, began_s, ended_s, 1, got)
        if got < length:
            tally.short(kind, began_s)
        if self._ledger is not None:
            row = turn.rows[0]
            verify.check(view[:got], self._paths[number], row, self._ledger.expected(row))

    def _write(self, turn: Turn, view: memoryview, tally: Tally) -> None:
        ((number, offset, length),) = turn.rows
        part = view[:length]
        if self._ledger is not None:
            with self._lock:
                generation = self._ledger.next_generation(turn.rows[0])
            verify.stamp(part, number, offset, generation)
        began_s = CLOCK.monotonic()
        done = os.pwritev(self._files[number], (part,), offset)
        ended_s = CLOCK.monotonic()
        tally.add("write", began_s, ended_s, 1, done)
        if done < length:
            tally.short("write", began_s)
        if turn.sync:
            _SYNCS[turn.sync](self._files[number])
            tally.add("sync", ended_s, CLOCK.monotonic(), 1, 0)

    async def verify(self, begin_s: float) -> None:
        await self._threads.run(self._verify, begin_s)

    def _verify(self, begin_s: float) -> None:
        """Read back every block that was written."""
        if self._ledger is None or not self._job.writes:
            return
        for file in self._files:
            os.fsync(file)
            with contextlib.suppress(OSError):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        tally = Tally(begin_s)
        self.tallies.append(tally)
        view = memoryview(mmap.mmap(-1, self._job.block_sizes[-1]))
        for row in self._ledger.written():
            if self._stopped:
                return
            self._read(Turn(False, [row], 0.0, ""), view, tally, "verify")

    def stop(self) -> None:
        self._stopped = True
        self._stop.set()
        if self._turns is not None:
            self._turns.stopped = True

    def grants(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        self.stop()
        await self._threads.close()
        for file in self._files:
            os.close(file)
        if self._job["unlink"]:
            for path in self._paths:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _write_all(file: int, view: memoryview, offset: int) -> None:
    while len(view):
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done
