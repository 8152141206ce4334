"""A chunk engine against a model of it: random changes, several at a time, and kills and power cuts at any moment."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.content_plan import Kind, Update
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import BlobKey, OverlayLimits, range_of_blobs

from tests.harness.chunk_engine import NO_OVERLAYS, read_range
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.loop import Process, SimLoop
from tests.harness.simulated.record_table import open_table
from threefs.checksums import crc32c
from threefs.errors import NoSpace
from threefs.ids import ChunkId, WriteIdentity

CHUNK_BYTES = 1 << 18
CLIENT = bytes(range(16))
#: Of an operation of the disk. A change needs two to six of them.
_DELAY_S = (0.0, 2.0)
_STEP_S = 0.3
_LIMITS = (NO_OVERLAYS, OverlayLimits(), OverlayLimits(5000, 500, 3, 8000))


@dataclass
class Model:
    """What a chunk must hold."""

    committed: bytes | None = None  # None: it does not exist
    version: int = 0
    pending: bytes | None = None
    pending_version: int = 0  # 0: none is pending
    acknowledged: int = 0  # the newest version that was durable, and not dropped
    #: Content by (version, checksum): more than one may have had the number of a version that was dropped.
    known: dict[tuple[int, int], bytes] = field(default_factory=dict)


class Machine:
    """Changes go through `stage`, `commit` and `drop`; `fail_power` checks that nothing acknowledged is lost."""

    def __init__(self, loop: SimLoop, seed: int, limits: OverlayLimits | None = None) -> None:
        self.random = random.Random(seed)
        self.disk = SimDisk(loop, SeededRandom(seed), capacity_bytes=self.random.choice([1 << 40, 900_000]))
        self.disk.delay_s = _DELAY_S
        self.disk.cold = 0.3
        self.limits = limits or self.random.choice(_LIMITS)
        self.full = 0  # changes that found no room
        self.models: dict[ChunkId, Model] = {}
        self.engine: ChunkEngine
        self._process: Process
        self._dead: list[Process] = []  # kept, so that nothing of them is destroyed, and runs its `finally`

    async def open(self) -> None:
        self._process = Process(self.disk.loop, "storage", "host")
        self.engine = await self._process.start(
            ChunkEngine.open(
                Path("/target"),
                self.disk,
                EngineSettings(cached_records=4, overlay=self.limits),
                random=self.disk.random,
                open_table=lambda path: open_table(self.disk, path),
            )
        )
        assert self.engine.damaged == []

    async def stage(self, chunk: ChunkId, kind: Kind, offset: int, length: int) -> None:
        model = self.models.setdefault(chunk, Model())
        if model.pending_version and kind != Kind.REPLACE:
            return
        payload = self.random.randbytes(length) if kind in (Kind.WRITE, Kind.REPLACE) else b""
        version = max(model.version, model.pending_version) + 1
        content = expected(model.committed, kind, offset, length, payload)
        if content is not None:
            model.known[version, crc32c(content)] = content
        change = Update(
            kind, version, 1, offset if payload else 0, length, crc32c(payload), CHUNK_BYTES,
            WriteIdentity(CLIENT, 1, version), entries=() if kind == Kind.REPLACE else None,
        )  # fmt: skip
        try:
            await self.engine.stage(chunk, change, payload=payload)
        except NoSpace:
            self.full += 1
            return
        model.pending, model.pending_version, model.acknowledged = content, version, version

    def commit(self, chunk: ChunkId) -> None:
        model = self.models.get(chunk)
        if model is not None and model.pending_version:
            self.engine.commit(chunk, model.pending_version, 1)
            model.committed, model.version = model.pending, model.pending_version
            model.pending, model.pending_version = None, 0

    def drop(self, chunk: ChunkId) -> None:
        model = self.models.get(chunk)
        if model is not None and model.pending_version:
            self.engine.drop_pending(chunk)
            model.pending, model.pending_version, model.acknowledged = None, 0, model.version

    async def fold(self, chunk: ChunkId) -> None:
        if chunk in self.engine.foldable:
            try:
                await self.engine.fold(chunk)
            except NoSpace:
                self.full += 1

    async def change_limits(self) -> None:
        """In the middle of what is under way an administrator sets other limits."""
        await asyncio.sleep(self.random.random() * _DELAY_S[1])
        self.limits = self.random.choice(_LIMITS)
        self.engine.adopt(EngineSettings(cached_records=self.random.choice((2, 4, 16)), overlay=self.limits))

    async def together(self, changes: list[Coroutine[Any, Any, None]], fail_after: int | None) -> None:
        """At the same time; after so many moments the process is killed, mostly by a power cut."""
        tasks = [self._process.start(change) for change in changes]
        done, _ = await asyncio.wait(tasks, timeout=None if fail_after is None else fail_after * _STEP_S)
        for task in done:
            task.result()
        if fail_after is not None:
            await self.fail_power(power=self.random.random() < 0.7)

    async def kill(self) -> None:
        """Nothing is under way, and nothing may be lost."""
        self._kill()
        await self.open()
        await self.check()

    def _kill(self) -> None:
        self._process.kill()
        self._dead.append(self._process)

    async def fail_power(self, *, power: bool = True) -> None:
        self._kill()
        if power:
            self.disk.cut_power()
        await self.open()
        for chunk, model in self.models.items():
            await self._adopt(chunk, model)
        await self.check()

    async def check(self) -> None:
        """The engine and the model agree in every byte."""
        assert not self.disk.unreserved(), "a write into a hole, or beyond what was allocated"
        for chunk, model in self.models.items():
            record = self.engine.record(chunk)
            committed = record.committed if record else None
            pending = record.pending if record else None
            assert (committed.version if committed else 0) == model.version
            assert (pending.version if pending else 0) == model.pending_version
            assert await self._content(committed) == model.committed
            assert await self._content(pending) == model.pending
        self._check_blobs()
        existing = sum(model.committed is not None for model in self.models.values())
        assert self.engine.space().chunks == existing

    def _check_blobs(self) -> None:
        """Blobs are those that records name."""
        table, named = self.engine._store._table, 0
        for chunk in self.models:
            record = self.engine.record(chunk) or Record()
            found = {BlobKey.number_of(key): len(data) for key, data in table.scan(*range_of_blobs(chunk))}
            assert found == record.blobs
            named += sum(found.values())
        assert self.engine._store.blob_bytes == named

    async def _adopt(self, chunk: ChunkId, model: Model) -> None:
        """Take over what a power failure has left, if it is something that it may leave."""
        record = self.engine.record(chunk)
        committed = record.committed if record else None
        pending = record.pending if record else None
        versions = [version.version for version in (committed, pending) if version]
        assert max(versions, default=0) >= model.acknowledged, "an acknowledged version is lost"
        model.committed, model.pending = self._known(model, committed), self._known(model, pending)
        model.version = committed.version if committed else 0
        model.pending_version = pending.version if pending else 0
        model.acknowledged = max(versions, default=0)

    def _known(self, model: Model, version: Version | None) -> bytes | None:
        return None if version is None or version.removed else model.known[version.version, version.checksum]

    async def _content(self, version: Version | None) -> bytes | None:
        if version is None or version.removed:
            return None
        return await read_range(self.engine, version, 0, version.length)


def simulate(
    seed: int, body: Callable[[Machine], Coroutine[Any, Any, None]], limits: OverlayLimits | None = None
) -> None:
    """Run `body` with a machine that has been opened."""
    loop = SimLoop()

    async def main() -> None:
        machine = Machine(loop, seed, limits)
        await machine.open()
        await body(machine)

    loop.run(main())
    assert not loop.failures
    loop.discard()


def expected(old: bytes | None, kind: Kind, offset: int, length: int, payload: bytes) -> bytes | None:
    """The content that a change makes of the old one."""
    before = old or b""
    if kind == Kind.REMOVE:
        return None
    if kind == Kind.REPLACE:
        return payload
    if kind == Kind.TRUNCATE:
        return before[:length].ljust(length, b"\0")
    if kind == Kind.EXTEND or not payload:
        return before.ljust(length, b"\0")
    return before[:offset].ljust(offset, b"\0") + payload + before[offset + length :]
