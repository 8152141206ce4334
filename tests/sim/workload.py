"""What the clients of a simulation do: changes and reads of a few chunks, most of them shared, each noted down."""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from threefs_client.context import ClientContext
from threefs_client.data.reads import ReadFile
from threefs_meta.store.identity import EPOCH_BITS

from tests.harness.history import History, Kind, Operation, Outcome
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process
from tests.sim.giving_up import drawn_wait, given_up
from tests.sim.scaled_content import expand, shrink
from tests.sim.version_order import Order
from tests.sim.world import World
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import NoSpace, Retry, ThreefsError
from threefs.ids import ChunkId, ClientId, InodeId, TableId
from threefs.layout import FileLayout
from threefs.wire import storage_pb2 as pb

CHUNK_BYTES = 64 << 10
#: Chunks here have no file. A number that a meta service gives out would give them one, and a writer that no history
#: knows. Meta services count up from 2, and from `epoch << EPOCH_BITS` after a restore: none comes as far.
FIRST_INODE = 1 << (EPOCH_BITS - 1)
_APART = 100  # between the numbers of chunks of one client and those of the next
_MOST_LENGTH = 600  # of a history; a chunk has so many grains
_GRAINS = (8, 109, 431, 436, 512)  # content of 4 KiB, 64 KiB, and about 256 KiB, of which the last is for O_DIRECT
_TIMEOUT_S = 30.0
_MOST_UNKNOWN = 2  # then a client waits as long as it takes: many changes that may or may not be are hard to check
_MOST_CANCELS = 6  # changes of chunks that a client gives up: each is one more of these; of reads there may be more
_MOST_ROWS = 5
_IN_PIECES = 0.4  # of the writes of a client that makes requests of several rows
_CROWD_S = 2.0  # in so long the crowd has written
_KINDS = {Kind.WRITE: pb.WRITE, Kind.TRUNCATE: pb.TRUNCATE, Kind.EXTEND: pb.EXTEND, Kind.REMOVE: pb.REMOVE}


@dataclass(frozen=True, slots=True)
class Load:
    faults_s: float = 20.0  # faults begin for so long
    chunks: int = 4  # that all clients change, at a time
    apart: float = 0.0  # the share of its changes that a client makes in a chunk that no other one changes
    moves_s: float = 0.0  # after so long one chunk is left as it is, and a new one takes its place; 0: never
    pause_s: float = 0.15  # between two operations of a client, on average
    reads: float = 0.5
    watchers: int = 0  # of each client: they read beside that, whatever its other operations wait for
    watch_pause_s: float = 0.5
    files_pause_s: float = 0.5
    files_bytes: int = 3000  # the most that a file has
    patience_s: float = 30.0  # when it is short, changes are left behind that nobody repeats
    rows: float = 0.0  # the share of operations that are requests of several rows
    large: float = 0.0  # the share of chunks whose content is large
    cancels: float = 0.0  # the share of operations that their caller gives up at some moment
    stores: bool = False  # other stores take the place of those of metadata and managers
    restores: bool = False  # these stores are lost, and restored from backups
    cuts: bool = False  # of the power of local stores
    intruders: bool = False  # processes of another key
    visitors: bool = False  # processes that hold all connections that a service takes
    absences: bool = False  # disks are missing when their process starts, and come back
    removals: bool = False  # a node dies for good, and is removed
    brims: bool = False  # a disk fills up while its targets are brought up to date
    holds: bool = False  # an administrator takes targets out of service, and makes others the head
    dozes: bool = False  # clients fall asleep under their locks
    strange_disks: bool = False  # disks say something else than they do
    small_disks: bool = False  # disks stay small until the files that fill them are removed
    swoons: bool = False  # managers fall asleep in their transactions
    scarce_memory: bool = False  # machines have no memory for some buffers
    losses: bool = False  # an administrator accepts that the last copies of chains are lost
    crowd: int = 0  # writers with identities of their own, who write once each to the same chunk

    @property
    def forgets_names(self) -> bool:
        return self.stores or self.restores


class Change(NamedTuple):
    """One row: lengths and offsets are those of the history."""

    number: int  # of the chunk
    kind: Kind
    offset: int
    length: int
    payload: bytes


class Workload:
    """Begun once, stopped once. `history` is complete when `stop` has returned."""

    def __init__(self, world: World, load: Load) -> None:
        self.history = History()
        self.order = Order(world)
        self.errors: list[str] = []
        self.longest = {"read": 0.0, "write": 0.0}
        self._world = world
        self._load = load
        self._stopping = False
        self._beginning: dict[str, None] = {}  # clients that have no routing yet
        self._payloads = 0
        self._began = 0.0
        self._waits: dict[str, float] = {}  # client, or watcher of one -> since when its operation lasts
        self.links: dict[str, ClientContext] = {}
        self._unknown: dict[str, int] = {}  # client -> how many changes ended so
        self._chains = world.size.storage * world.size.targets_per_disk // world.size.replicas
        self._used: dict[int, None] = {}  # numbers of chunks
        self._grains: dict[int, int] = {}
        self._cancels: dict[str, int] = {}  # client -> how many changes it has given up
        self._changing: dict[str, None] = {}  # clients whose operation is a change
        self._at_waits = SeededRandom(world.seed, "cancelled at")

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
        self._changing.pop(host, None)

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
            self.links[host] = link
            self.order.follow(link.chunks)
            self._beginning.pop(host, None)
            async with asyncio.TaskGroup() as all_of_it:
                all_of_it.create_task(self._mix(host, link, dice))
                if host == self._world.client_hosts[0] and self._load.crowd:
                    all_of_it.create_task(self._crowd(host, name, link))
                for watcher in range(self._load.watchers):
                    own = SeededRandom(self._world.seed, "watch", name, watcher)
                    all_of_it.create_task(self._watch(f"{host} beside {watcher}", link, own))
        except Exception as error:
            self.errors.append(f"client {host} ended with {error!r}")
            self._beginning.pop(host, None)

    async def read_all(self, host: str) -> None:
        """Read every chunk once more, as a client."""
        link = self.links[host]
        for number in list(self._used):
            for _ in range(self._world.size.replicas):
                await self._read(host, link, [(number, 0, _MOST_LENGTH)])

    # ---- further operations, which are in no history

    @property
    def numbers(self) -> list[int]:
        """Of the chunks that were used."""
        return list(self._used)

    def update(self, number: int, payload: bytes) -> ChunkUpdate:
        """Writes this from the beginning of a chunk on."""
        inode, layout = self._chunk(number)
        content = expand(payload, self._grain(number))
        chain = next(iter(self.links.values())).chunks.chain_of(layout, 0)
        return ChunkUpdate(chain, ChunkId(inode, 0), pb.WRITE, layout.chunk_bytes, 0, len(content), content)

    async def content(self, host: str, number: int, length: int) -> bytes:
        """What a client reads from the beginning of a chunk. Raises ThreefsError."""
        link, (inode, layout) = self.links[host], self._chunk(number)
        view = memoryview(bytearray(length * self._grain(number)))
        file = ReadFile(inode, layout, layout.chunk_bytes, 0)
        await link.reader.read_into([(file, 0, view)], link.clock.monotonic() + _TIMEOUT_S)
        return shrink(bytes(view), self._grain(number))

    # ---- what each client does

    async def _mix(self, host: str, link: ClientContext, dice: SeededRandom) -> None:
        while not self._stopping:
            await self._operate_or_give_up(host, link, dice)
            await asyncio.sleep(dice.uniform(0, 2 * self._load.pause_s))

    async def _watch(self, reader: str, link: ClientContext, dice: SeededRandom) -> None:
        while not self._stopping:
            whose = self._world.client_hosts[dice.below(len(self._world.client_hosts))]
            await self._read(reader, link, [(self._draw_chunk(dice, whose), 0, _MOST_LENGTH)])
            await asyncio.sleep(dice.uniform(0, 2 * self._load.watch_pause_s))

    async def _crowd(self, host: str, name: str, link: ClientContext) -> None:
        """More writers than a record keeps results of, in turns of a few at a time."""
        dice = SeededRandom(self._world.seed, "crowd", name)
        writers = iter(range(self._load.crowd))

        async def turn() -> None:
            for writer in writers:
                if self._stopping:
                    return
                chunks = ChunkClient(
                    link.peers, link.cluster, ClientId(dice.token(16)), clock=link.clock, random=link.random
                )
                self.order.follow(chunks)
                offset, length = dice.below(_MOST_LENGTH - 20), 1 + dice.below(20)
                change = self._drawn(self._draw_shared(0), Kind.WRITE, offset, length)
                await self._change(f"{host} crowd {writer}", link, [change], chunks)
                await asyncio.sleep(dice.uniform(0, 8 * _CROWD_S / self._load.crowd))

        await asyncio.sleep(dice.uniform(0, 4.0))
        async with asyncio.TaskGroup() as turns:
            for _ in range(4):
                turns.create_task(turn())

    def _draw_chunk(self, dice: SeededRandom, host: str) -> int:
        if dice.chance(self._load.apart):
            return self._draw_shared(_APART * (1 + self._world.client_hosts.index(host)))
        return self._draw_shared(dice.below(self._load.chunks))

    def _draw_shared(self, number: int) -> int:
        if self._load.moves_s:
            number += int((self._now() - self._began) / self._load.moves_s)
        self._used[number] = None
        return number

    def _chunk(self, number: int) -> tuple[InodeId, FileLayout]:
        chunk_bytes = max(CHUNK_BYTES, 1 << (self._grain(number) * _MOST_LENGTH - 1).bit_length())
        layout = FileLayout(chunk_bytes, TableId(1), 1, table_offset=number % self._chains)
        return InodeId(FIRST_INODE + number), layout

    def _grain(self, number: int) -> int:
        grain = self._grains.get(number)
        if grain is None:
            dice = SeededRandom(self._world.seed, "grain", number)
            grain = _GRAINS[dice.below(len(_GRAINS))] if dice.chance(self._load.large) else 1
            self._grains[number] = grain
        return grain

    async def _operate_or_give_up(self, host: str, link: ClientContext, dice: SeededRandom) -> None:
        if not dice.chance(self._load.cancels):
            await self._operate(host, link, dice)
            return

        def may_be() -> bool:
            return host not in self._changing or self._cancels.get(host, 0) < _MOST_CANCELS

        after_s, at_waits = 0.0003 * 1000.0 ** dice.uniform(0, 1), self._at_waits
        if at_waits.chance(0.5):
            await given_up(self._operate(host, link, dice), drawn_wait(at_waits), may_be)
            return
        work = asyncio.ensure_future(self._operate(host, link, dice))
        await asyncio.wait([work], timeout=after_s)
        if not work.done() and may_be():
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def _operate(self, host: str, link: ClientContext, dice: SeededRandom) -> None:
        rows = 1 + dice.below(_MOST_ROWS) if dice.chance(self._load.rows) else 1
        numbers = list({self._draw_chunk(dice, host): None for _ in range(rows)})
        if dice.chance(self._load.reads):
            await self._read(host, link, [(number, *self._draw_range(dice)) for number in numbers])
        elif dice.chance(0.8):
            await self._change(host, link, [change for number in numbers for change in self._draw_writes(number, dice)])
        else:
            kind = (Kind.TRUNCATE, Kind.EXTEND, Kind.REMOVE)[dice.below(3)]
            length = 0 if kind is Kind.REMOVE else 1 + dice.below(_MOST_LENGTH)
            await self._change(host, link, [self._drawn(number, kind, 0, length) for number in numbers])

    def _draw_writes(self, number: int, dice: SeededRandom) -> list[Change]:
        """The writes of one call to one chunk: some in pieces near each other, which clients join."""
        if not (self._load.rows and dice.chance(_IN_PIECES)):
            return [self._drawn(number, Kind.WRITE, *self._draw_range(dice))]
        changes, at = [], dice.below(_MOST_LENGTH // 2)
        for _ in range(2 + dice.below(3)):
            length = 1 + dice.below(40)
            changes.append(self._drawn(number, Kind.WRITE, at, length))
            at += length + dice.below(2 * length)
        return changes

    @staticmethod
    def _draw_range(dice: SeededRandom) -> tuple[int, int]:
        offset = dice.below(_MOST_LENGTH // 2) if dice.chance(0.5) else 0
        return offset, 1 + dice.below(_MOST_LENGTH - offset)

    def _drawn(self, number: int, kind: Kind, offset: int, length: int) -> Change:
        payload = b""
        if kind is Kind.WRITE:
            self._payloads += 1
            payload = (f"<{self._payloads}>".encode() * length)[:length]
        return Change(number, kind, offset, length, payload)

    async def _read(self, host: str, link: ClientContext, rows: Sequence[tuple[int, int, int]]) -> None:
        """Rows of number, offset and length."""
        views = [memoryview(bytearray(length * self._grain(number))) for number, _, length in rows]
        begin = self._waits[host] = self._now()
        try:
            asked = []
            for (number, offset, _), view in zip(rows, views, strict=True):
                inode, layout = self._chunk(number)
                asked.append((ReadFile(inode, layout, layout.chunk_bytes, 0), offset * self._grain(number), view))
            await link.reader.read_into(asked, link.clock.monotonic() + self._patience(host))
        except ThreefsError as error:
            self._failed(host, Kind.READ, error)
            return
        finally:
            self._waits.pop(host, None)
        for (number, offset, length), view in zip(rows, views, strict=True):
            inode, _ = self._chunk(number)
            seen = Operation(host, Kind.READ, str(inode), begin, self._now(), offset=offset, length=length)
            seen = replace(seen, result=shrink(bytes(view), self._grain(number)), padded=True)
            self._ended(seen, "read")
            self.history.append(seen)

    async def _change(
        self, host: str, link: ClientContext, rows: Sequence[Change], chunks: ChunkClient | None = None
    ) -> None:
        begin = self._waits[host] = self._now()
        told: list[tuple[int, Operation]] = []
        updates = []
        for number, kind, offset, length, payload in rows:
            inode, layout = self._chunk(number)
            operation = Operation(
                host, kind, str(inode), begin, None, Outcome.UNKNOWN, offset=offset, length=length, payload=payload
            )
            place = self.history.append(operation)
            told.append((place, operation))
            grain = self._grain(number)
            update = ChunkUpdate(
                (chunks or link.chunks).chain_of(layout, 0),
                ChunkId(inode, 0),
                _KINDS[kind],
                layout.chunk_bytes,
                offset * grain,
                length * grain,
                expand(payload, grain),
            )
            self.order.note(chunks or link.chunks, update, place)
            updates.append(update)
        self._changing[host] = None
        try:
            await (chunks or link.chunks).apply(updates, timeout_s=self._patience(host))
        except ThreefsError as error:
            self._failed(host, rows[0].kind, error)
            if isinstance(error, NoSpace) and not self._world.was_full_since(begin):
                self.errors.append(f"{host} found no room, and each chain has a disk with room: {error}")
            if error.retry is not Retry.UNKNOWN and len(rows) == 1:  # of several the others may have been made
                self._tell(told, Outcome.FAILED)
            else:
                self._unknown[host] = self._unknown.get(host, 0) + len(rows)
            return
        except asyncio.CancelledError:
            self._cancels[host] = self._cancels.get(host, 0) + len(rows)
            raise
        finally:
            self._waits.pop(host, None)
            self._changing.pop(host, None)
        self._tell(told, Outcome.OK)

    def _tell(self, told: Sequence[tuple[int, Operation]], outcome: Outcome) -> None:
        for place, operation in told:
            ended = replace(operation, outcome=outcome, returned=self._now())
            if outcome is Outcome.OK:
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
