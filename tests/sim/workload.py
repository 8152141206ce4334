"""What the clients of a simulation do: changes and reads of a few chunks, most of them shared, each noted down."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

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
_APART = 100  # between the numbers of chunks of one client and those of the next
_MOST_LENGTH = 600
_TIMEOUT_S = 30.0
_MOST_UNKNOWN = 2  # then a client waits as long as it takes: many changes that may or may not be are hard to check


@dataclass(frozen=True, slots=True)
class Load:
    chunks: int = 4  # that all clients change, at a time
    apart: float = 0.0  # the share of its changes that a client makes in a chunk that no other one changes
    moves_s: float = 0.0  # after so long one chunk is left as it is, and a new one takes its place; 0: never
    pause_s: float = 0.15  # between two operations of a client, on average
    reads: float = 0.5
    watchers: int = 0  # of each client: they read beside that, whatever its other operations wait for
    watch_pause_s: float = 0.5
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
        self._beginning: dict[str, None] = {}  # clients that have no routing yet
        self._payloads = 0
        self._began = 0.0
        self._waits: dict[str, float] = {}  # client, or watcher of one -> since when its operation lasts
        self._clients: dict[str, Link] = {}
        self._unknown: dict[str, int] = {}  # client -> how many changes ended so
        self._chains = world.size.storage * world.size.targets_per_disk // world.size.replicas
        self._used: dict[int, None] = {}  # numbers of chunks

    def begin(self) -> None:
        self._began = self._now()
        self._world.client_main = self._client
        for host in self._world.client_hosts:
            self._world.start(host)

    def _client(self, process: Process) -> Coroutine[Any, Any, None]:
        host = process.host
        self._beginning[host] = None
        process.on_kill[lambda: self._killed(host)] = None
        return self._work(host, process.name)

    def _killed(self, host: str) -> None:
        self._beginning.pop(host, None)
        if host in self._waits:
            self._unknown[host] = self._unknown.get(host, 0) + 1
        for who in [who for who in self._waits if who.split()[0] == host]:
            del self._waits[who]

    async def stop(self, limit_s: float) -> None:
        """Let every operation end. Adds to `errors` what has not ended by then (I13)."""
        self._stopping = True
        try:
            async with asyncio.timeout(limit_s):
                while self._waits or self._beginning:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.errors.append(f"I13: operations of {sorted({**self._waits, **self._beginning})} have not ended")

    async def _work(self, host: str, name: str) -> None:
        dice = SeededRandom(self._world.seed, "load", name)
        try:
            link = await self._world.client(host)
            self._clients[host] = link
            self._beginning.pop(host, None)
            async with asyncio.TaskGroup() as all_of_it:
                all_of_it.create_task(self._mix(host, link, dice))
                for watcher in range(self._load.watchers):
                    own = SeededRandom(self._world.seed, "watch", name, watcher)
                    all_of_it.create_task(self._watch(f"{host} beside {watcher}", link, own))
        except Exception as error:
            self.errors.append(f"client {host} ended with {error!r}")
            self._beginning.pop(host, None)

    async def read_all(self, host: str) -> None:
        """Read every chunk once more, as a client."""
        link = self._clients[host]
        for number in self._used:
            for _ in range(self._world.size.replicas):
                await self._read(host, link, *self._chunk(number), 0, _MOST_LENGTH)

    async def _mix(self, host: str, link: Link, dice: SeededRandom) -> None:
        while not self._stopping:
            await self._operate(host, link, dice)
            await asyncio.sleep(dice.uniform(0, 2 * self._load.pause_s))

    async def _watch(self, reader: str, link: Link, dice: SeededRandom) -> None:
        while not self._stopping:
            whose = self._world.client_hosts[dice.below(len(self._world.client_hosts))]
            await self._read(reader, link, *self._draw_chunk(dice, whose), 0, _MOST_LENGTH)
            await asyncio.sleep(dice.uniform(0, 2 * self._load.watch_pause_s))

    def _draw_chunk(self, dice: SeededRandom, host: str) -> tuple[InodeId, FileLayout]:
        load = self._load
        number = int((self._now() - self._began) / load.moves_s) if load.moves_s else 0
        if dice.chance(load.apart):
            number += _APART * (1 + self._world.client_hosts.index(host))
        else:
            number += dice.below(load.chunks)
        self._used[number] = None
        return self._chunk(number)

    def _chunk(self, number: int) -> tuple[InodeId, FileLayout]:
        layout = FileLayout(CHUNK_BYTES, TableId(1), 1, table_offset=number % self._chains)
        return InodeId(_FIRST_INODE + number), layout

    async def _operate(self, host: str, link: Link, dice: SeededRandom) -> None:
        inode, layout = self._draw_chunk(dice, host)
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
            self._waits.pop(host, None)
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
            self._waits.pop(host, None)
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
