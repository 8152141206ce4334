"""The engine `native`: batches of the client library, as training reads and writes them.

Each slot is one task with memory of its own, and has one call in flight; a call has `batch` blocks.
"""

import asyncio
import contextlib
import mmap
from dataclasses import asdict

import threefs_client

from threefs.env.clock import CLOCK
from threefs.errors import NotFound
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
from threefs_bench.load.task_slots import TaskSlots
from threefs_bench.load.turns import Turn, Turns, Window
from threefs_bench.load.workload import Row

TIMEOUT_S = 60.0
_OPENED = 64  # files that are opened at a time


class Slot:
    """Memory for the blocks of one call."""

    def __init__(self, blocks: int, block_bytes: int) -> None:
        whole = memoryview(mmap.mmap(-1, blocks * block_bytes))
        fill(whole)
        self._pieces = [whole[begin : begin + block_bytes] for begin in range(0, len(whole), block_bytes)]
        self._block_bytes = block_bytes

    def views(self, rows: list[Row]) -> list[memoryview]:
        """One for each row, of its length."""
        return [
            piece if row[2] == self._block_bytes else piece[: row[2]]
            for piece, row in zip(self._pieces, rows, strict=False)
        ]


class NativeEngine:
    def __init__(self, part: Assignment) -> None:
        self.tallies: list[Tally] = []
        self._part = part
        self._job = part.job
        self._paths = part.paths()
        self._ledger = part.ledger()
        self._files: list[threefs_client.AsyncFile] = []
        self._turns: Turns | None = None
        self._slots = TaskSlots()
        self._memory: list[Slot] = []  # filled before the run, so that it is not measured
        self._fs: threefs_client.AsyncFileSystem

    async def prepare(self, progress: Progress) -> None:
        self._fs = await threefs_client.connect_async(
            self._job["address"],
            timeout_s=TIMEOUT_S,
            noatime=True,
            unix_sockets=self._job["unix_sockets"],
            key_file=self._part.key_file,
        )
        numbered = list(enumerate(self._paths))
        for begin in range(0, len(numbered), _OPENED):
            if self._slots.stopped:
                return
            some = numbered[begin : begin + _OPENED]
            self._files += await asyncio.gather(*(self._open(number, path, progress) for number, path in some))
        self._memory = [Slot(self._job.batch, self._job.block_sizes[-1]) for _ in range(self._job.slots)]

    async def _open(self, number: int, path: str, progress: Progress) -> threefs_client.AsyncFile:
        if self._job.reads:
            await self._lay_out(number, path, progress)
        if not self._job.writes:
            return await self._fs.open(path, "rb")
        try:
            return await self._fs.open(path, "r+b")
        except NotFound:
            return await self._fs.open(path, "w+b", parents=True)

    async def _lay_out(self, number: int, path: str, progress: Progress) -> None:
        """Write the file that is to be read, unless it is there with all its bytes."""
        length = 0
        with contextlib.suppress(NotFound):
            length = (await self._fs.stat(path)).length
        if length >= self._job.file_bytes:
            return
        space = await self._fs.statfs()
        check_room(path, self._job.file_bytes - length, space.free_bytes // max(1, space.replicas))
        view = memoryview(bytearray(max(LAYOUT_BYTES, self._job.block_sizes[-1])))
        fill(view)
        async with await self._fs.open(path, "wb", parents=True) as file:
            for row in layout_rows(self._job, number):
                if self._slots.stopped:
                    return
                if self._ledger is not None:
                    verify.stamp(view[: row[2]], number, row[1], laid_out_generation(self._job, self._ledger, row))
                await self._fs.write_batch([(file, row[1], view[: row[2]])])
                progress(row[2])

    async def run(self, window: Window) -> None:
        turns = self._turns = self._part.turns(window, self._ledger)
        turns.stopped = self._slots.stopped
        self.tallies = [Tally(window.begin_s) for _ in range(self._job.slots)]
        pairs = zip(self.tallies, self._memory, strict=False)  # a stop in `prepare` leaves the memory out
        await self._slots.run(self._slot(turns, tally, slot) for tally, slot in pairs)

    async def _slot(self, turns: Turns, tally: Tally, slot: Slot) -> None:
        try:
            while (turn := turns.take(CLOCK.monotonic())) is not None:
                if turn.start_s > CLOCK.monotonic() and not await self._slots.pause_until(turn.start_s):
                    return
                if not turn.rows:
                    tally.last_s = turn.start_s
                    return
                await (self._write if turn.is_write else self._read)(turn, slot, tally)
                turns.end(turn)
        finally:
            turns.stopped = True

    async def _read(self, turn: Turn, slot: Slot, tally: Tally, kind: str = "read") -> None:
        views = slot.views(turn.rows)
        rows = [(self._files[number], offset, length) for number, offset, length in turn.rows]
        began_s = CLOCK.monotonic()
        found = await self._fs.read_batch(rows, into=views)
        ended_s = CLOCK.monotonic()
        wanted, got = sum(map(len, views)), sum(map(len, found))
        tally.add(kind, began_s, ended_s, len(rows), got)
        if got < wanted:
            tally.short(kind, began_s, sum(len(one) < row[2] for one, row in zip(found, turn.rows, strict=True)))
        if self._ledger is not None:
            for view, row in zip(found, turn.rows, strict=True):
                verify.check(view, self._paths[row[0]], row, self._ledger.expected(row))

    async def _write(self, turn: Turn, slot: Slot, tally: Tally) -> None:
        views = slot.views(turn.rows)
        if self._ledger is not None:
            for view, row in zip(views, turn.rows, strict=True):
                verify.stamp(view, row[0], row[1], self._ledger.next_generation(row))
        rows = [(self._files[row[0]], row[1], view) for row, view in zip(turn.rows, views, strict=True)]
        began_s = CLOCK.monotonic()
        done = await self._fs.write_batch(rows)
        ended_s = CLOCK.monotonic()
        tally.add("write", began_s, ended_s, len(rows), done)
        if turn.sync:
            for number in {row[0] for row in turn.rows}:
                await self._files[number].flush()
            tally.add("sync", ended_s, CLOCK.monotonic(), 1, 0)

    async def verify(self, begin_s: float) -> None:
        """Read back every block that was written."""
        if self._ledger is None or not self._job.writes:
            return
        tally = Tally(begin_s)
        self.tallies.append(tally)
        slot = Slot(1, self._job.block_sizes[0])
        for row in self._ledger.written():
            if self._slots.stopped:
                return
            await self._read(Turn(False, [row], 0.0, ""), slot, tally, "verify")

    def stop(self) -> None:
        self._slots.stop()
        if self._turns is not None:
            self._turns.stopped = True

    def grants(self) -> dict[str, float]:
        grants = self._fs.context.grants
        return {} if grants is None else asdict(grants.counters)

    async def close(self) -> None:
        self.stop()
        try:
            await asyncio.gather(*(file.close() for file in self._files))
            if self._job["unlink"]:
                await self._fs.remove_many(self._paths)
        finally:
            if hasattr(self, "_fs"):
                await self._fs.close()
