"""The engine `meta`: names are created, looked at, listed, renamed and removed by the client library.

All processes of a job have a directory each, `NAME.PROCESS` in `directory`, which is removed at the end.
"""

import asyncio
from collections.abc import Sequence

import threefs_client

from threefs.env.clock import CLOCK
from threefs.errors import AlreadyExists, NotFound, ThreefsError
from threefs_bench.load.load_engine import Assignment, Progress
from threefs_bench.load.meta_workload import NameCall, NameWindow, names_before
from threefs_bench.load.native_engine import TIMEOUT_S
from threefs_bench.load.tally import Tally
from threefs_bench.load.task_slots import TaskSlots
from threefs_bench.load.turns import Pace, Window
from threefs_bench.load.values import Pair
from threefs_bench.load.workload import seed_of

_PREPARED = 4096  # names in a call
#: Operations that only look; as in fio they count as reads, and the others as writes.
LOOKS = frozenset(("stat", "list"))


class MetaEngine:
    def __init__(self, part: Assignment) -> None:
        self.tallies: list[Tally] = []
        self._part = part
        self._job = part.job
        self._top = f"{(self._job['directory'] or '/').rstrip('/')}/{self._job.stem(part.process, part.host)}"
        self._slots = TaskSlots()
        self._left: float = 0
        self._pace = Pace(Pair(0, 0), self._job["rate_iops"])
        self._made = False
        self._fs: threefs_client.AsyncFileSystem

    async def prepare(self, progress: Progress) -> None:
        self._fs = await threefs_client.connect_async(
            self._job["address"],
            timeout_s=TIMEOUT_S,
            unix_sockets=self._job["unix_sockets"],
            key_file=self._part.key_file,
        )
        try:
            if above := self._top.rpartition("/")[0]:
                await self._fs.mkdir(above, parents=True)
            await self._fs.mkdir(self._top)
        except AlreadyExists:
            raise AlreadyExists(
                f"directory {self._top} exists, perhaps of a run that was killed: remove it (`threefs rm -r "
                f"{self._top}`), or choose another directory="
            ) from None
        self._made = True
        for slot in range(self._job.slots):
            names = names_before(self._job, slot)
            for begin in range(0, names, _PREPARED):
                if self._slots.stopped:
                    return
                some = range(begin, min(begin + _PREPARED, names))
                _raise_first(await self._fs.create_many(self._paths(slot, some)))
                progress(len(some))

    def _paths(self, slot: int, numbers: Sequence[int]) -> list[str]:
        return [f"{self._top}/{slot}.{number}" for number in numbers]

    async def run(self, window: Window) -> None:
        self._left = float("inf") if self._job["time_based"] else self._job.files
        self.tallies = [Tally(window.begin_s) for _ in range(self._job.slots)]
        await self._slots.run(self._slot(slot, tally, window) for slot, tally in enumerate(self.tallies))

    async def _slot(self, slot: int, tally: Tally, window: Window) -> None:
        seed = seed_of(self._job, self._part.number, self._part.process) + slot
        names = NameWindow(self._job, names_before(self._job, slot), seed)
        while not self._slots.stopped and self._left > 0 and (now_s := CLOCK.monotonic()) < window.end_s:
            call = names.next()
            if call is None:
                return
            start_s = self._pace.start_s(call.operation not in LOOKS, now_s, len(call.numbers) or 1, 0)
            if start_s > now_s and not await self._slots.pause_until(min(start_s, window.end_s)):
                return
            if start_s >= window.end_s:  # the job lasts until its end, as with fio
                tally.last_s = window.end_s
                return
            if max(start_s, now_s) >= window.begin_s:
                self._left -= len(call.numbers)
            began_s = CLOCK.monotonic()
            operations = await self._do(slot, call)
            tally.add(call.operation, began_s, CLOCK.monotonic(), operations, 0)
            if call.operation == "list" and began_s >= window.begin_s:
                self._left -= operations

    async def _do(self, slot: int, call: NameCall) -> int:
        """How many operations it was: a listing counts as many as it has names."""
        fs, paths = self._fs, self._paths(slot, call.numbers)
        single = len(paths) == 1
        match call.operation:
            case "create" if single:
                await fs.create(paths[0])
            case "create":
                _raise_first(await fs.create_many(paths))
            case "stat" if single:
                await fs.stat(paths[0])
            case "stat":
                for path, found in zip(paths, await fs.stat_many(paths), strict=True):
                    if found is None:
                        raise NotFound(f"{path} is not there, and this run has created it")
            case "list":
                return sum([1 async for _ in fs.list(self._top)])
            case "rename":
                renamed = self._paths(slot, call.renamed)
                await asyncio.gather(*(fs.rename(old, new) for old, new in zip(paths, renamed, strict=True)))
            case "remove" if single:
                await fs.unlink(paths[0])
            case "remove":
                _raise_first(await fs.remove_many(paths))
        return len(paths)

    async def verify(self, begin_s: float) -> None:
        """There is no content."""

    def stop(self) -> None:
        self._slots.stop()

    def grants(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        self.stop()
        if not hasattr(self, "_fs"):
            return
        try:
            if self._made:
                await self._fs.remove(self._top, recursive=True)
        finally:
            await self._fs.close()


def _raise_first(outcomes: Sequence[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, ThreefsError):
            raise outcome
