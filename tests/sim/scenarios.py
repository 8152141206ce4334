"""Failovers in text: faults that strike at a point of the protocol, and the story that must come of them.

    world NAME=VALUE ...                               first of all: what of the cluster is not as in `Size`
    when HOST EVENT [N] do FAULT [HOST ...] [FOR]      at the N-th time (default 1) that HOST tells of EVENT
    at SECONDS do FAULT [HOST ...] [FOR]
    on NUMBER                                          the lines behind it are about this chunk; 0 at the beginning
    write CLIENT TEXT [OFFSET]                         begun at once; the writes of a scenario go on beside each other
    batch CLIENT NAME NUMBER@OFFSET=TEXT ...           a request of several rows, called NAME
    remove CLIENT NAME [VERSION]                       begun at once, called NAME; only if it still is that version
    under CLIENT FENCE                                 its changes name that fence from now on
    fence CLIENT FENCE                                 begun at once, called "fence": the file's fence is raised to that
    waits CLIENT                                       one answer to it waits for its grant
    ask CLIENT TEXT                                    a read, begun at once and called "ask TEXT"
    cancel NAME                                        its caller gives up what was begun under that name
    then ...                                           the lines behind it wait for all that was begun before it
    read CLIENT TEXT [or TEXT]                         must see this at the beginning of the chunk
    sees CLIENT HOST TEXT                              asks that replica alone, once, and must see this
    looks CLIENT HOST TEXT                             the same, but no answer is fine too
    lists CLIENT HOST LENGTH                           asks that replica how long the chunk is; no answer is fine too
    expect HOST EVENT VERSION                          HOST has told of it
    never HOST EVENT VERSION                           HOST has not
    wait SECONDS
    until HOST EVENT                                   HOST tells of it, from now on
    during SECONDS LINE                                the line holds all that time
    once NAME LINE                                     the line holds, if what is called NAME is done by now
    repeat TIMES LINE
    either NAME NAME                                   waits for all; one of the two is done, and the other is not
    changes TIMES                                      the chain has changed so often since the beginning, or since this
                                                       was last asked
    well                                               faults end, every target serves again, and all hold the same
    outcome NAME ENDING ...                            waits for all; how NAME has ended: done, killed with its client,
                                                       cancelled, or with one of these errors
    ended NAME ENDING ...                              the same, without waiting: it must have ended by now
    results NAME LENGTH ...                            how long the chunks of its rows are, as it was answered
    patience CLIENT SECONDS                            how long its changes are tried from now on, and its
                                                       calls of files that it opens
    budget CLIENT BYTES                                how many bytes of changes it may have on their way
    flip HOST                                          a bit of its copy of the chunk turns over on the disk
    forge HOST TEXT VERSION                            its copy of the chunk becomes that one, with good checksums
    lose HOST                                          it has no record of the chunk any more
    cold HOST SHARE                                    the share of its reads whose bytes are not in memory
    jam HOST FOR                                       what is to be written to its disk is written only afterwards;
                                                       its table of records works
    exchange HOST                                      its disk is exchanged, while it has no power
    copy HOST                                          of its disk
    revert HOST                                        that copy takes the place of its disk, while it has no power
    scrub HOST                                         looks at all that it has
    sound                                              no replica has ever met damage
    rest                                               nothing that was lent, locked or begun is left

A TEXT may be long: `x*20000`.

The hosts of the chain are called head, middle and tail, as they are at the beginning; managers m1 and m2, clients c1
and c2. Events are those of the chunk's story: early (durable here, but its forward has not come),
staged (durable and pending here), forwarding (before it leaves for the
successor), committed, shipped, repaired. Lines about files are in `scenario_files.py`.
"""

import ast
import asyncio
import os
import shlex
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from threefs_client.data.reads import ReadFile
from threefs_storage.engine.content_plan import Kind, Update
from threefs_storage.target import Target

from tests.harness.simulated.disk import Image
from tests.harness.simulated.loop import KERNEL, Process
from tests.sim import audit
from tests.sim.faults import Faults, Step
from tests.sim.leak_audit import kept
from tests.sim.scenario_files import FileLines
from tests.sim.workload import CHUNK_BYTES, FIRST_INODE
from tests.sim.world import LEASE_S, Size, World
from threefs.byte_budget import ByteBudget
from threefs.checksums import crc32c
from threefs.cluster.chunk_client import Applied
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.env.buffers import POISON_VARIABLE
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, InodeId, TableId
from threefs.layout import FENCE_CHUNK, MAX_CHUNK_BYTES, FileLayout
from threefs.rpc.methods import LAST_CHUNK, READ
from threefs.wire import storage_pb2 as pb

os.environ[POISON_VARIABLE] = "1"  # I14, as in runs of seeds

_INODE = InodeId(FIRST_INODE)
_LAYOUT = FileLayout(CHUNK_BYTES, TableId(1), 1)
_TIMEOUT_S = 20.0
_LIMIT_S = 300.0
_LOOK_S = 0.3
_OFTEN_S = 0.01


@dataclass(slots=True)
class _Trigger:
    host: str
    event: str
    chunk: ChunkId
    count: int
    step: Step


@dataclass(slots=True)
class Told:
    """What was told of the chunks, in order, and how what was begun has ended."""

    events: list[tuple[str, str, int, ChunkId]] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    results: dict[str, list[int]] = field(default_factory=dict)  # by name: lengths of chunks, in bytes

    def __str__(self) -> str:
        return "\n".join(f"{host} {event} {version}" for host, event, version, _ in self.events)


def play(text: str, *, seed: object = 1, size: Size | None = None) -> Told:
    """Raises AssertionError where the story is another one than the text expects."""
    lines = [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]
    size = size or Size(storage=3, targets_per_disk=1, clients=2)
    while lines[0][0] == "world":
        size = replace(size, **{name: ast.literal_eval(value) for name, value in _pairs(lines.pop(0)[1:])})
    with tempfile.TemporaryDirectory(prefix="threefs-scenario-") as directory:
        world = World(seed, size, Path(directory))
        stage = _Stage(world)
        try:
            world.loop.run(stage.play(lines), limit_s=_LIMIT_S)
            assert not world.deaths and not world.loop.failures, (world.deaths, world.loop.failures)
        finally:
            world.loop.discard()
        return stage.told


def _content(text: str) -> bytes:
    """The bytes of a TEXT; `x*1000` stands for a thousand of them."""
    some, star, count = text.partition("*")
    return some.encode() * int(count) if star else text.encode()


def _pairs(words: list[str]) -> list[list[str]]:
    return [word.split("=", 1) for word in words]


class _Stage(FileLines):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.told = Told()
        self._world = world
        self._faults = Faults(world)
        self._triggers: list[_Trigger] = []
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._waited: list[asyncio.Future[None]] = []
        self._chunk = ChunkId(_INODE, 0)
        self._timeouts: dict[str, float] = {}
        self._fences: dict[str, int] = {}  # by client
        self._copies: dict[str, Image] = {}  # of disks, by host
        world.listeners.append(self._hear)

    def _hear(self, host: str, event: str, chunk: Any, facts: dict[str, Any]) -> None:
        if not isinstance(chunk, ChunkId) or chunk.inode != _INODE:
            return
        self.told.events.append((host, event, facts["version"], chunk))
        self._world.tell(f"{host} {event} {facts['version']}")
        for trigger in list(self._triggers):
            if (trigger.host, trigger.event, trigger.chunk) == (host, event, chunk):
                trigger.count -= 1
                if trigger.count == 0:
                    self._triggers.remove(trigger)
                    KERNEL.copy().run(self._faults.begin, trigger.step)  # what goes on must outlive the process

    async def play(self, lines: list[list[str]]) -> None:
        await self._world.begin()
        for client in self._world.client_hosts:
            process = self._world.processes[client] = Process(self._world.loop, client, client)
            self._links[client] = await process.start(self._world.client(client))
        roles = self._roles()
        self._chain_version = self._newest_chain_version()
        for line in lines:
            await self._line(*(roles.get(word, word) for word in line))
        await self._then()

    async def _line(self, name: str, *words: str) -> None:
        await getattr(self, f"_{name}")(*words)

    def _roles(self) -> dict[str, str]:
        routing = self._world.routing()
        assert routing is not None
        (chain,) = routing.chains.values()
        hosts = [f"s{routing.targets[target].node_id}" for target in chain.serving]
        return dict(zip(("head", "middle", "tail"), hosts, strict=True))

    def _target(self, host: str) -> Target:
        (target,) = self._world.storages[host].targets
        return target

    # ---- the lines of a scenario

    async def _when(self, host: str, event: str, *rest: str) -> None:
        count = int(rest[0]) if rest[0] != "do" else 1
        self._triggers.append(_Trigger(host, event, self._chunk, count, _step(rest[rest.index("do") + 1 :])))

    async def _at(self, seconds: str, *rest: str) -> None:
        self._world.loop.call_later(float(seconds), self._faults.begin, _step(rest[1:]))

    async def _on(self, number: str) -> None:
        self._chunk = ChunkId(_INODE, int(number))

    async def _write(self, client: str, text: str, offset: str = "0") -> None:
        await self._change(client, text, [self._row(client, self._chunk.number, pb.WRITE, text, int(offset))])

    async def _batch(self, client: str, name: str, *rows: str) -> None:
        updates = []
        for place, text in _pairs(list(rows)):
            number, offset = place.split("@")
            updates.append(self._row(client, int(number), pb.WRITE, text, int(offset)))
        await self._change(client, name, updates)

    async def _remove(self, client: str, name: str, version: str = "0") -> None:
        row = self._row(client, self._chunk.number, pb.REMOVE)
        await self._change(client, name, [replace(row, only_version=int(version))])

    def _row(self, client: str, number: int, kind: pb.WriteKind, text: str = "", offset: int = 0) -> ChunkUpdate:
        chain = self._links[client].chunks.chain_of(_LAYOUT, number)
        payload = _content(text)
        fence = self._fences.get(client, 0)
        return ChunkUpdate(
            chain, ChunkId(_INODE, number), kind, CHUNK_BYTES, offset, len(payload), payload, fence=fence
        )

    async def _under(self, client: str, fence: str) -> None:
        self._fences[client] = int(fence)

    async def _fence(self, client: str, fence: str) -> None:
        chain = self._links[client].chunks.chain_of(_LAYOUT, 0)
        chunk = ChunkId(_INODE, FENCE_CHUNK)
        await self._change(client, "fence", [ChunkUpdate(chain, chunk, pb.EXTEND, MAX_CHUNK_BYTES, length=int(fence))])

    async def _change(self, client: str, name: str, rows: list[ChunkUpdate]) -> None:
        async def change() -> None:
            timeout_s = self._timeouts.get(client, _TIMEOUT_S)
            applied: list[Applied] = await self._links[client].chunks.apply(rows, timeout_s=timeout_s)
            self.told.results[name] = [each.length for each in applied]

        await self._begin(client, name, change())

    async def _ask(self, client: str, text: str) -> None:
        await self._begin(client, f"ask {text}", self._read(client, text))

    async def _begin(self, client: str, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Let it go on beside the lines that follow."""

        async def told() -> None:
            try:
                await work
                self.told.outcomes[name] = "done"
            except ThreefsError as error:
                self.told.outcomes[name] = type(error).__name__
            except asyncio.CancelledError:
                self.told.outcomes[name] = "cancelled"
            except AssertionError as error:
                self.told.outcomes[name] = f"wrong: {error}"
            self._world.tell(f"{client}: {name} has ended: {self.told.outcomes[name]}")

        ended = self._world.loop.create_future()

        def end(_: object = None) -> None:
            self.told.outcomes.setdefault(name, "killed")
            if not ended.done():
                ended.set_result(None)

        process = self._world.processes[client]
        process.on_kill[end] = None
        self._begun[name] = process.start(told())
        self._begun[name].add_done_callback(end)
        self._waited.append(ended)
        await asyncio.sleep(0)

    async def _waits(self, client: str) -> None:
        grants = self._links[client].grants
        assert grants is not None and grants.budget.waiting == 1, f"no answer to {client} waits"

    async def _cancel(self, name: str) -> None:
        self._begun[name].cancel()

    async def _then(self) -> None:
        if self._waited:
            await asyncio.wait(self._waited)
            self._waited.clear()

    async def _read(self, client: str, *texts: str) -> None:
        wanted = [_content(text) for text in texts if text != "or"]
        link = self._links[client]
        view = memoryview(bytearray(len(wanted[0])))
        begin = self._chunk.number * CHUNK_BYTES
        file = ReadFile(_INODE, _LAYOUT, begin + CHUNK_BYTES, 0)
        deadline = link.clock.monotonic() + _TIMEOUT_S
        await self._world.processes[client].start(link.reader.read_into([(file, begin, view)], deadline))
        self._world.tell(f"{client} reads {bytes(view)!r}")
        assert bytes(view) in wanted, f"{client} read {bytes(view)!r}\n{self.told}"

    async def _sees(self, client: str, host: str, text: str) -> None:
        found = await self._look(client, host, len(text))
        assert found == text.encode(), f"{client} sees {found!r} at {host}\n{self.told}"

    async def _looks(self, client: str, host: str, text: str) -> None:
        found = await self._look(client, host, len(text))
        assert found in (None, text.encode()), f"{client} sees {found!r} at {host}\n{self.told}"

    async def _look(self, client: str, host: str, length: int) -> bytes | None:
        """None if it does not answer, or refuses."""
        into = bytearray(length)
        target, chain_version, address = self._asked(client, host)
        request = pb.ReadRequest(
            target=[target],
            chain_version=[chain_version],
            inode=[_INODE],
            index=[self._chunk.number],
            offset=[0],
            length=[length],
        )
        call = self._links[client].peers.call(
            address, READ, request, timeout_s=_LOOK_S, sink=lambda *_: [memoryview(into)]
        )
        try:
            reply = await self._world.processes[client].start(call)
        except ThreefsError:
            return None
        return None if reply.code[0] else bytes(into[: reply.length[0]])

    async def _lists(self, client: str, host: str, length: str) -> None:
        target, chain_version, address = self._asked(client, host)
        request = pb.LastChunkRequest(target=target, chain_version=chain_version, inode=_INODE)
        call = self._links[client].peers.call(address, LAST_CHUNK, request, timeout_s=_LOOK_S)
        try:
            reply = await self._world.processes[client].start(call)
        except ThreefsError:
            return
        assert reply.length == int(length), f"{client} hears of {reply.length} bytes at {host}\n{self.told}"

    def _asked(self, client: str, host: str) -> tuple[int, int, str]:
        """The target of a host, its chain's version and its address, as the client knows them."""
        routing = self._links[client].cluster.routing
        (target,) = (one for one in routing.targets.values() if f"s{one.node_id}" == host)
        return target.target_id, routing.chains[target.chain_id].version, routing.address_of(target.target_id)

    async def _expect(self, host: str, event: str, version: str) -> None:
        assert self._was_told(host, event, version), f"{host} {event} {version} is not told in\n{self.told}"

    async def _never(self, host: str, event: str, version: str) -> None:
        assert not self._was_told(host, event, version), f"{host} {event} {version} is told in\n{self.told}"

    def _was_told(self, host: str, event: str, version: str) -> bool:
        return (host, event, int(version), self._chunk) in self.told.events

    async def _outcome(self, name: str, *endings: str) -> None:
        await self._then()
        assert self.told.outcomes[name] in endings, self.told.outcomes

    async def _ended(self, name: str, *endings: str) -> None:
        assert self.told.outcomes.get(name) in endings, self.told.outcomes

    async def _either(self, *names: str) -> None:
        await self._then()
        assert [self.told.outcomes[name] for name in names].count("done") == 1, self.told.outcomes

    async def _changes(self, times: str) -> None:
        before, self._chain_version = self._chain_version, self._newest_chain_version()
        assert self._chain_version - before == int(times), f"the chain has changed {self._chain_version - before} times"

    def _newest_chain_version(self) -> int:
        routing = self._world.routing()
        assert routing is not None
        (chain,) = routing.chains.values()
        return chain.version

    async def _results(self, name: str, *lengths: str) -> None:
        assert self.told.results[name] == list(map(int, lengths)), self.told.results

    async def _until(self, host: str, event: str) -> None:
        known = len(self.told.events)
        async with asyncio.timeout(_TIMEOUT_S):
            while not any(told[:2] == (host, event) for told in self.told.events[known:]):
                await asyncio.sleep(0.0005)

    async def _wait(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def _during(self, seconds: str, *line: str) -> None:
        end = self._world.loop.time() + float(seconds)
        while self._world.loop.time() < end:
            await self._line(*line)
            await asyncio.sleep(_OFTEN_S)

    async def _once(self, name: str, *line: str) -> None:
        if self.told.outcomes.get(name) == "done":
            await self._line(*line)

    async def _repeat(self, times: str, *line: str) -> None:
        for _ in range(int(times)):
            await self._line(*line)

    async def _well(self) -> None:
        await self._faults.heal()
        small_disks = self._faults.small_disks
        await small_disks.settle()
        longer_s = max(self._world.hold_off_left_s(), small_disks.away_left_s())
        async with asyncio.timeout(4 * LEASE_S + longer_s):
            while not self._world.healthy():
                await asyncio.sleep(0.05)
        await small_disks.take_writes()
        assert not small_disks.violations, small_disks.violations
        await self._then()
        await asyncio.sleep(1.0)
        assert not audit.replicas(self._world), audit.replicas(self._world)

    async def _patience(self, client: str, seconds: str) -> None:
        self._timeouts[client] = float(seconds)
        link = self._links[client]
        self._links[client] = replace(link, options=replace(link.options, timeout_s=float(seconds)))

    async def _budget(self, client: str, size: str) -> None:
        self._links[client].chunks._budget = ByteBudget(int(size))

    # ---- disks, and what must be left of them

    async def _flip(self, host: str) -> None:
        disk = self._world.disks[host]
        (copy,) = [copy for copy in disk.copies() if copy[1] == self._chunk]
        self._world.tell(f"-- {disk.flip(self._world.dice, *copy)} flips")

    async def _forge(self, host: str, text: str, version: str) -> None:
        target = self._target(host)
        chain_version, content = target.chain.version - 1, _content(text)
        update = Update(
            Kind.REPLACE,
            int(version),
            chain_version,
            length=len(content),
            checksum=crc32c(content),
            chunk_bytes=CHUNK_BYTES,
        )

        async def forge() -> None:
            await target.engine.stage(self._chunk, update, payload=content)
            target.engine.commit(self._chunk, int(version), chain_version)

        await self._world.processes[host].start(forge())

    async def _lose(self, host: str) -> None:
        self._target(host).engine.forget(self._chunk)

    async def _cold(self, host: str, share: str) -> None:
        self._world.disks[host].cold = float(share)

    async def _jam(self, host: str, seconds: str) -> None:
        self._world.disks[host].hang("write")
        self._world.loop.call_later(float(seconds), self._world.disks[host].wake)

    async def _exchange(self, host: str) -> None:
        assert host in self._world.fabric.down, f"{host} has power"
        self._world.disks[host].wipe()

    async def _copy(self, host: str) -> None:
        self._copies[host] = self._world.disks[host].copied()

    async def _revert(self, host: str) -> None:
        assert host in self._world.fabric.down, f"{host} has power"
        self._world.disks[host].restore(self._copies[host])

    async def _scrub(self, host: str) -> None:
        scrubber = self._world.storages[host].storage.scrubber
        await self._world.processes[host].start(scrubber._scrub(self._target(host)))

    async def _sound(self) -> None:
        found = {host: self._target(host).damaged_chunks_found for host in self._world.storages}
        assert not any(found.values()), f"damage was found: {found}"

    async def _rest(self) -> None:
        left = await kept(self._world, self._links)
        assert not left, left


def _step(words: tuple[str, ...]) -> Step:
    what, *rest = words
    hosts = tuple(word for word in rest if not word[0].isdigit())
    lasts = [float(word) for word in rest if word[0].isdigit()]
    return Step(0.0, what, hosts, lasts[0] if lasts else 0.0)
