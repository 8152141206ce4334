"""Failovers in text: faults that strike at a point of the protocol, and the story that must come of them.

    when HOST EVENT [N] do FAULT [HOST ...] [FOR]      at the N-th time (default 1) that HOST tells of EVENT
    at SECONDS do FAULT [HOST ...] [FOR]
    write CLIENT TEXT [OFFSET]                         begun at once; the writes of a scenario go on beside each other
    then ...                                           the lines behind it wait for all writes before it
    read CLIENT TEXT                                   must see this at the beginning of the chunk
    sees CLIENT HOST TEXT                              asks that replica alone, once, and must see this
    looks CLIENT HOST TEXT                             the same, but no answer is fine too
    expect HOST EVENT VERSION                          HOST has told of it
    never HOST EVENT VERSION                           HOST has not
    wait SECONDS
    until HOST EVENT                                   HOST tells of it, from now on
    well                                               faults end, every target serves again, and all hold the same
    outcome TEXT NAME ...                              how the write of TEXT has ended: done, killed with its client, or
                                                       one of these errors

The hosts of the chain are called head, middle and tail, as they are at the beginning; managers m1 and m2, clients c1
and c2. Events are those of the chunk's story: staged (durable and pending here), forwarding (before it leaves for the
successor), committed, shipped, repaired.
"""

import asyncio
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threefs_client.link import Link
from threefs_client.reads import ReadFile

from tests.sim import audit
from tests.sim.faults import Faults, Step
from tests.sim.loop import KERNEL, Process
from tests.sim.workload import CHUNK_BYTES
from tests.sim.world import LEASE_S, Size, World
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, InodeId, TableId
from threefs.layout import FileLayout
from threefs.rpc.methods import READ
from threefs.wire import storage_pb2 as pb

_CHUNK = ChunkId(100, 0)
_LAYOUT = FileLayout(CHUNK_BYTES, TableId(1), 1)
_TIMEOUT_S = 20.0
_LIMIT_S = 120.0
_LOOK_S = 0.3


@dataclass(slots=True)
class _Trigger:
    host: str
    event: str
    count: int
    step: Step


@dataclass(slots=True)
class Told:
    """What was told of the chunk, in order, and how the writes ended."""

    events: list[tuple[str, str, int]] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(f"{host} {event} {version}" for host, event, version in self.events)


def play(text: str, *, seed: object = 1, size: Size | None = None) -> Told:
    """Raises AssertionError where the story is another one than the text expects."""
    with tempfile.TemporaryDirectory(prefix="threefs-scenario-") as directory:
        world = World(seed, size or Size(storage=3, targets_per_disk=1, clients=2), Path(directory))
        stage = _Stage(world)
        try:
            world.loop.run(stage.play(text), limit_s=_LIMIT_S)
            assert not world.deaths and not world.loop.failures, (world.deaths, world.loop.failures)
        finally:
            world.loop.discard()
        return stage.told


class _Stage:
    def __init__(self, world: World) -> None:
        self.told = Told()
        self._world = world
        self._faults = Faults(world)
        self._triggers: list[_Trigger] = []
        self._links: dict[str, Link] = {}
        self._writes: list[asyncio.Future[None]] = []
        world.listeners.append(self._hear)

    def _hear(self, host: str, event: str, chunk: Any, facts: dict[str, Any]) -> None:
        if chunk != _CHUNK:
            return
        self.told.events.append((host, event, facts["version"]))
        self._world.tell(f"{host} {event} {facts['version']}")
        for trigger in list(self._triggers):
            if (trigger.host, trigger.event) == (host, event):
                trigger.count -= 1
                if trigger.count == 0:
                    self._triggers.remove(trigger)
                    KERNEL.copy().run(self._faults.begin, trigger.step)  # what goes on must outlive the process

    async def play(self, text: str) -> None:
        await self._world.begin()
        for client in self._world.client_hosts:
            process = self._world.processes[client] = Process(self._world.loop, client, client)
            self._links[client] = await process.start(self._world.client(client))
        roles = self._roles()
        for line in text.strip().splitlines():
            words = [roles.get(word, word) for word in shlex.split(line, comments=True)]
            if words:
                await getattr(self, f"_{words[0]}")(*words[1:])
        await self._then()

    def _roles(self) -> dict[str, str]:
        routing = self._world.routing()
        assert routing is not None
        (chain,) = routing.chains.values()
        hosts = [f"s{routing.targets[target].node_id}" for target in chain.serving]
        return dict(zip(("head", "middle", "tail"), hosts, strict=True))

    # ---- the lines of a scenario

    async def _when(self, host: str, event: str, *rest: str) -> None:
        count = int(rest[0]) if rest[0] != "do" else 1
        self._triggers.append(_Trigger(host, event, count, _step(rest[rest.index("do") + 1 :])))

    async def _at(self, seconds: str, *rest: str) -> None:
        self._world.loop.call_later(float(seconds), self._faults.begin, _step(rest[1:]))

    async def _write(self, client: str, text: str, offset: str = "0") -> None:
        async def write() -> None:
            try:
                await self._links[client].chunks.write(
                    _LAYOUT, InodeId(_CHUNK.inode), 0, int(offset), text.encode(), timeout_s=_TIMEOUT_S
                )
                self.told.outcomes[text] = "done"
            except ThreefsError as error:
                self.told.outcomes[text] = type(error).__name__

        ended = self._world.loop.create_future()

        def end(_: object = None) -> None:
            self.told.outcomes.setdefault(text, "killed")
            if not ended.done():
                ended.set_result(None)

        process = self._world.processes[client]
        process.on_kill[end] = None
        process.start(write()).add_done_callback(end)
        self._writes.append(ended)
        await asyncio.sleep(0)

    async def _then(self) -> None:
        if self._writes:
            await asyncio.wait(self._writes)
            self._writes.clear()

    async def _read(self, client: str, text: str) -> None:
        link = self._links[client]
        view = memoryview(bytearray(len(text)))
        file = ReadFile(_CHUNK.inode, _LAYOUT, CHUNK_BYTES, 0)
        deadline = link.clock.monotonic() + _TIMEOUT_S
        await self._world.processes[client].start(link.reader.read_into([(file, 0, view)], deadline))
        self._world.tell(f"{client} reads {bytes(view)!r}")
        assert bytes(view) == text.encode(), f"{client} read {bytes(view)!r}\n{self.told}"

    async def _sees(self, client: str, host: str, text: str) -> None:
        found = await self._look(client, host, len(text))
        assert found == text.encode(), f"{client} sees {found!r} at {host}\n{self.told}"

    async def _looks(self, client: str, host: str, text: str) -> None:
        found = await self._look(client, host, len(text))
        assert found in (None, text.encode()), f"{client} sees {found!r} at {host}\n{self.told}"

    async def _look(self, client: str, host: str, length: int) -> bytes | None:
        """None if it does not answer, or refuses."""
        link, into = self._links[client], bytearray(length)
        routing = link.cluster.routing
        (target,) = (one for one in routing.targets.values() if f"s{one.node_id}" == host)
        request = pb.ReadRequest(
            target=[target.target_id],
            chain_version=[routing.chains[target.chain_id].version],
            inode=[_CHUNK.inode],
            index=[_CHUNK.number],
            offset=[0],
            length=[length],
        )
        call = link.peers.call(
            routing.address_of(target.target_id), READ, request, timeout_s=_LOOK_S, sink=lambda *_: [memoryview(into)]
        )
        try:
            reply = await self._world.processes[client].start(call)
        except ThreefsError:
            return None
        return None if reply.code[0] else bytes(into[: reply.length[0]])

    async def _expect(self, host: str, event: str, version: str) -> None:
        assert (host, event, int(version)) in self.told.events, f"{host} {event} {version} is not told in\n{self.told}"

    async def _never(self, host: str, event: str, version: str) -> None:
        assert (host, event, int(version)) not in self.told.events, f"{host} {event} {version} is told in\n{self.told}"

    async def _outcome(self, text: str, *names: str) -> None:
        await self._then()
        assert self.told.outcomes[text] in names, self.told.outcomes

    async def _until(self, host: str, event: str) -> None:
        known = len(self.told.events)
        async with asyncio.timeout(_TIMEOUT_S):
            while not any(told[:2] == (host, event) for told in self.told.events[known:]):
                await asyncio.sleep(0.0005)

    async def _wait(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def _well(self) -> None:
        await self._faults.heal()
        async with asyncio.timeout(4 * LEASE_S):
            while not self._world.healthy():
                await asyncio.sleep(0.05)
        await self._then()
        await asyncio.sleep(1.0)
        assert not audit.replicas(self._world), audit.replicas(self._world)


def _step(words: tuple[str, ...]) -> Step:
    what, *rest = words
    hosts = tuple(word for word in rest if not word[0].isdigit())
    lasts = [float(word) for word in rest if word[0].isdigit()]
    return Step(0.0, what, hosts, lasts[0] if lasts else 0.0)
