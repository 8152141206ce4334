"""What the clients of a simulation do: changes and reads of a few chunks that all of them share, each noted down."""

import asyncio
from dataclasses import dataclass, replace

from threefs_client.link import Link
from threefs_client.reads import ReadFile

from tests.sim.dice import SeededRandom
from tests.sim.loop import Process
from tests.sim.world import World
from tests.support.history import History, Kind, Operation, Outcome
from threefs.errors import Retry, ThreefsError
from threefs.ids import InodeId, TableId
from threefs.layout import FileLayout

CHUNK_BYTES = 64 << 10
_FIRST_INODE = 100
_MOST_LENGTH = 600
_TIMEOUT_S = 30.0
_MOST_UNKNOWN = 2  # then a client waits as long as it takes: many changes that may or may not be are hard to check


@dataclass(frozen=True, slots=True)
class Load:
    chunks: int = 4
    pause_s: float = 0.15  # between two operations of a client, on average
    reads: float = 0.5
    files_pause_s: float = 0.5
    patience_s: float = 30.0  # when it is short, changes are left behind that nobody repeats


class Workload:
    """Begun once, stopped once. `history` is complete when `stop` has returned."""

    def __init__(self, world: World, load: Load) -> None:
        self.history = History()
        self.errors: list[str] = []
        self.longest = {"read": 0.0, "write": 0.0}
        self._world = world
        self._load = load
        self._stopping = False
        self._busy = 0
        self._payloads = 0
        self._waits: dict[str, float] = {}  # client -> since when its operation lasts
        self._clients: dict[str, Link] = {}
        self._unknown: dict[str, int] = {}  # client -> how many changes ended so
        chains = world.size.storage * world.size.targets_per_disk // world.size.replicas
        self.chunks = [
            (InodeId(_FIRST_INODE + n), FileLayout(CHUNK_BYTES, TableId(1), 1, table_offset=n % chains))
            for n in range(load.chunks)
        ]

    def begin(self) -> None:
        for host in self._world.client_hosts:
            process = self._world.processes[host] = Process(self._world.loop, host, host)
            process.start(self._work(host))
            self._busy += 1

    async def stop(self, limit_s: float) -> None:
        """Let every operation end. Adds to `errors` what has not ended by then (I13)."""
        self._stopping = True
        try:
            async with asyncio.timeout(limit_s):
                while self._busy:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.errors.append(f"I13: operations of {sorted(self._waits)} have not ended")

    async def _work(self, host: str) -> None:
        dice = SeededRandom(self._world.seed, "load", host)
        try:
            link = await self._world.client(host)
            self._clients[host] = link
            while not self._stopping:
                await self._operate(host, link, dice)
                await asyncio.sleep(dice.uniform(0, 2 * self._load.pause_s))
        except Exception as error:
            self.errors.append(f"client {host} ended with {error!r}")
        finally:
            self._busy -= 1

    async def read_all(self, host: str) -> None:
        """Read every chunk once more, as a client."""
        link = self._clients[host]
        for inode, layout in self.chunks:
            for _ in range(3):
                await self._read(host, link, inode, layout, 0, _MOST_LENGTH)

    async def _operate(self, host: str, link: Link, dice: SeededRandom) -> None:
        inode, layout = self.chunks[dice.below(len(self.chunks))]
        offset = dice.below(_MOST_LENGTH // 2) if dice.chance(0.5) else 0
        length = 1 + dice.below(_MOST_LENGTH - offset)
        if dice.chance(self._load.reads):
            await self._read(host, link, inode, layout, offset, length)
        elif dice.chance(0.8):
            await self._change(host, link, inode, layout, Kind.WRITE, offset, length)
        else:
            kind = (Kind.TRUNCATE, Kind.EXTEND, Kind.REMOVE)[dice.below(3)]
            await self._change(host, link, inode, layout, kind, 0, 0 if kind is Kind.REMOVE else length)

    async def _read(self, host: str, link: Link, inode: InodeId, layout: FileLayout, offset: int, length: int) -> None:
        view = memoryview(bytearray(length))
        begin = self._waits[host] = self._now()
        try:
            file = ReadFile(inode, layout, CHUNK_BYTES, 0)
            await link.reader.read_into([(file, offset, view)], link.clock.monotonic() + self._patience(host))
        except ThreefsError as error:
            self._failed(host, Kind.READ, error)
            return
        finally:
            del self._waits[host]
        seen = Operation(host, Kind.READ, str(inode), begin, self._now(), offset=offset, length=length)
        seen = replace(seen, result=bytes(view), padded=True)
        self._ended(seen, "read")
        self.history.append(seen)

    async def _change(
        self, host: str, link: Link, inode: InodeId, layout: FileLayout, kind: Kind, offset: int, length: int
    ) -> None:
        self._payloads += 1
        payload = (f"<{self._payloads}>".encode() * length)[:length] if kind is Kind.WRITE else b""
        begin = self._waits[host] = self._now()
        change = Operation(
            host, kind, str(inode), begin, None, Outcome.UNKNOWN, offset=offset, length=length, payload=payload
        )
        place = self.history.append(change)
        chunks, timeout_s = link.chunks, self._patience(host)
        try:
            if kind is Kind.WRITE:
                await chunks.write(layout, inode, 0, offset, payload, timeout_s=timeout_s)
            elif kind is Kind.TRUNCATE:
                await chunks.truncate(layout, inode, 0, length, timeout_s=timeout_s)
            elif kind is Kind.EXTEND:
                await chunks.extend(layout, inode, 0, length, timeout_s=timeout_s)
            else:
                await chunks.remove(layout, inode, 0, timeout_s=timeout_s)
        except ThreefsError as error:
            self._failed(host, kind, error)
            if error.retry is not Retry.UNKNOWN:
                self.history.tell_again(place, replace(change, outcome=Outcome.FAILED, returned=self._now()))
            else:
                self._unknown[host] = self._unknown.get(host, 0) + 1
            return
        finally:
            del self._waits[host]
        ended = replace(change, outcome=Outcome.OK, returned=self._now())
        self._ended(ended, "write")
        self.history.tell_again(place, ended)

    def _patience(self, host: str) -> float:
        return self._load.patience_s if self._unknown.get(host, 0) < _MOST_UNKNOWN else _TIMEOUT_S

    def _failed(self, host: str, kind: Kind, error: ThreefsError) -> None:
        self._world.tell(f"{host}: {kind} failed: {error}")

    def _ended(self, operation: Operation, kind: str) -> None:
        assert operation.returned is not None
        self.longest[kind] = max(self.longest[kind], operation.returned - operation.invoked)

    def _now(self) -> float:
        return self._world.loop.time()
