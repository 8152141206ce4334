"""The disk of a simulated host. It outlives processes; what was not synced does not outlive a power cut.

An operation takes time and has its effect at its end, in the kernel: if its process is killed meanwhile it may be done,
done in part, or not at all.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from threefs_storage.engine.records import decode

from tests.sim.dice import SeededRandom
from tests.sim.loop import KERNEL, PROCESS, SimLoop
from threefs.checksums import Buffer
from threefs.env.disk import DiskSpace, Write
from threefs.errors import DiskFailed, NoSpace
from threefs.ids import ChunkId

SECTOR_BYTES = 512
CHUNK_KEY_BYTES = 12
DISK_BYTES = 1 << 30
_UNIT_BYTES = 64 << 10


class SimDisk:
    """threefs.env.disk.Disk."""

    def __init__(self, loop: SimLoop, random: SeededRandom, *, capacity_bytes: int = DISK_BYTES) -> None:
        self.loop = loop
        self.random = random
        self.capacity_bytes = capacity_bytes
        self.delay_s = (0.00005, 0.0005)
        self.dragging: tuple[float, float] | None = None  # takes the place of that for a while
        self.cold = 0.1  # the share of reads that find nothing in memory
        self.failing: set[str] = set()  # "read", "write", "sync", "allocate": these fail with EIO
        self.files: dict[Path, Content] = {}
        self.tables: dict[Path, Any] = {}  # SimTable's contents
        self.rotten = 0  # bits that have flipped

    async def open(self, path: Path) -> "SimFile":
        await self.wait()
        return SimFile(self, self.files.setdefault(path, Content()))

    async def make_directory(self, path: Path) -> None:
        await self.wait()

    async def list_directory(self, path: Path) -> list[str]:
        await self.wait()
        return sorted(file.name for file in self.files if file.parent == path)

    def space(self, path: Path) -> DiskSpace:
        return DiskSpace(self.capacity_bytes, self.free_bytes(), str(id(self)))

    def free_bytes(self) -> int:
        return self.capacity_bytes - sum(content.allocated() for content in self.files.values())

    async def wait(self) -> None:
        await asyncio.sleep(self.latency_s())

    def latency_s(self) -> float:
        return self.random.uniform(*(self.dragging or self.delay_s))

    async def do(self, effect: Callable[[], Any], *, kind: str, torn: Callable[[], Any] | None = None) -> Any:
        """Let `effect` happen after a while. `torn` is what may happen instead if the process is killed before."""
        process = PROCESS.get()
        done: asyncio.Future[Any] = self.loop.create_future()

        def happen() -> None:
            if process is not None and not process.alive:
                if self.random.chance(0.5):
                    effect()
                elif torn is not None:
                    torn()
                return
            if done.done():
                return
            if kind in self.failing:
                done.set_exception(DiskFailed(f"input/output error ({kind})"))
                return
            try:
                result = effect()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self.loop.call_later(self.latency_s(), happen, context=KERNEL)
        return await done

    def cut_power(self) -> None:
        """The processes are to be killed before."""
        for content in self.files.values():
            content.forget_unsynced(self.random)
        for table in self.tables.values():
            table.forget_unsynced(self.random)

    def rot(self, random: SeededRandom) -> bool:
        """Flip one bit of a record, or of the content that one names."""
        found = [(rows, key) for rows in self.tables.values() for key in rows.keys if len(key) == CHUNK_KEY_BYTES]
        if not found:
            return False
        rows, key = found[random.below(len(found))]
        value = rows.values[key]
        record = decode(ChunkId.of_key(key), value)
        committed = record.committed
        if committed is not None and committed.block is not None and random.chance(0.7):
            name = f"{1 << committed.block.bits >> 10}KiB.blocks"
            path = next(path for path in self.tables if self.tables[path] is rows).parent / "blocks" / name
            data = self.files[path].data
            bit = random.below(committed.length * 8) + (committed.block.slot << committed.block.bits) * 8
            data[bit // 8] ^= 1 << bit % 8
        else:
            bit = random.below(len(value) * 8)
            flipped = bytearray(value)
            flipped[bit // 8] ^= 1 << bit % 8
            rows.values[key] = bytes(flipped)
        self.rotten += 1
        return True

    def wipe(self) -> None:
        """A new disk is put in the place of this one."""
        self.files.clear()
        self.tables.clear()


class Content:
    """Of one file: what is there now, and how it was before each write that is not durable yet."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.released: set[int] = set()  # numbers of units without room
        self.unsynced: list[tuple[int, bytes]] = []

    def allocated(self) -> int:
        return len(self.data) - len(self.released) * _UNIT_BYTES

    def write(self, offset: int, piece: Buffer) -> None:
        end = offset + len(piece)
        assert end <= len(self.data), "a write beyond what was allocated"
        self.unsynced.append((offset, bytes(self.data[offset:end])))
        self.data[offset:end] = piece

    def forget_unsynced(self, random: SeededRandom) -> None:
        """Each sector of a write that was not synced is on the disk, or is not."""
        for offset, before in reversed(self.unsynced):
            for at in range(0, len(before), SECTOR_BYTES):
                if random.chance(0.5):
                    sector = before[at : at + SECTOR_BYTES]
                    self.data[offset + at : offset + at + len(sector)] = sector
        self.unsynced.clear()


class SimFile:
    """threefs.env.disk.File: one opening of a file by one process."""

    def __init__(self, disk: SimDisk, content: Content) -> None:
        self._disk = disk
        self.content = content

    def read_now(self, offset: int, into: memoryview) -> int:
        if "read" in self._disk.failing or self._disk.random.chance(self._disk.cold):
            return 0
        return self._read(offset, into)

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        count: int = await self._disk.do(lambda: self._read(offset, into), kind="read", torn=lambda: None)
        return count

    def _read(self, offset: int, into: memoryview) -> int:
        data = memoryview(self.content.data)[offset : offset + len(into)]
        into[: len(data)] = data
        return len(data)

    async def write(self, offset: int, parts: Sequence[Buffer], *, direct: bool = False) -> None:
        data = b"".join(parts)
        half = self._disk.random.below(len(data) + 1)
        await self._disk.do(
            lambda: self.content.write(offset, data),
            kind="write",
            torn=lambda: self.content.write(offset, data[:half]),
        )

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        for offset, parts in writes:
            await self.write(offset, parts)
        covered = set(map(id, self.content.unsynced))
        held = list(self.content.unsynced)  # so that no other write comes to have the identity of one of these

        def durable() -> None:
            self.content.unsynced = [write for write in self.content.unsynced if id(write) not in covered]

        await self._disk.do(durable, kind="sync")
        del held

    async def allocate(self, offset: int, length: int) -> None:
        def grow() -> None:
            content = self.content
            units = content.released & set(range(offset // _UNIT_BYTES, (offset + length) // _UNIT_BYTES))
            grown = max(0, offset + length - len(content.data))
            if grown + len(units) * _UNIT_BYTES > self._disk.free_bytes():
                raise NoSpace("the disk is full")
            content.released -= units
            content.data.extend(bytes(grown))

        await self._disk.do(grow, kind="allocate")

    async def release(self, offset: int, length: int) -> None:
        def dig() -> None:
            content = self.content
            content.released.update(range(offset // _UNIT_BYTES, (offset + length) // _UNIT_BYTES))
            content.data[offset : offset + length] = bytes(length)
            content.unsynced = [(at, b) for at, b in content.unsynced if not offset <= at < offset + length]

        await self._disk.do(dig, kind="write")

    def size(self) -> int:
        return len(self.content.data)

    def allocated(self) -> int:
        return self.content.allocated()

    async def close(self) -> None:
        """Nothing to release."""
