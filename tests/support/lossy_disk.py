"""A disk and a record table in memory that lose what was not made durable when the power fails."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from threefs.checksums import Buffer
from threefs.env.disk import DiskSpace, Write
from threefs.errors import DiskFailed, NoSpace, ThreefsError, Unavailable
from threefs.kv.port import Pair

_SECTOR_BYTES = 512
_UNIT_BYTES = 64 << 10


class LossyDisk:
    """Cold or cached by chance; each call lets other tasks run a few times before it has its effect."""

    def __init__(self, seed: int, capacity_bytes: int = 1 << 40) -> None:
        self.random = random.Random(seed)
        self.files: dict[Path, LossyFile] = {}
        self.capacity_bytes = capacity_bytes
        self.cold = 0.3  # the share of reads that find nothing in memory
        self.lost_power = False
        self.held: asyncio.Event | None = None  # what cold reads wait for

    async def open(self, path: Path) -> "LossyFile":
        return self.files.setdefault(path, LossyFile(self))

    async def make_directory(self, path: Path) -> None:
        pass

    async def list_directory(self, path: Path) -> list[str]:
        return sorted(file.name for file in self.files if file.parent == path)

    def space(self, path: Path) -> DiskSpace:
        return DiskSpace(self.capacity_bytes, self.free_bytes())

    def free_bytes(self) -> int:
        return self.capacity_bytes - sum(file.allocated() for file in self.files.values())

    def lose_power(self) -> None:
        """From now on everything fails, until `restore_power`."""
        self.lost_power = True

    def restore_power(self) -> None:
        """What was not synced is there or not, sector by sector."""
        self.lost_power = False
        for file in self.files.values():
            file.forget(self.random)

    async def pause(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        if self.lost_power:
            raise DiskFailed("the power is off")


class LossyFile:
    def __init__(self, disk: LossyDisk) -> None:
        self._disk = disk
        self._now = bytearray()
        self._durable = bytearray()
        self._released: set[int] = set()  # numbers of units without room
        self._unsynced: list[tuple[int, bytes]] = []

    def read_now(self, offset: int, into: memoryview) -> int:
        self._disk.check()
        return 0 if self._disk.random.random() < self._disk.cold else self._read(offset, into)

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        await self._disk.pause()
        if self._disk.held is not None:
            await self._disk.held.wait()
        return self._read(offset, into)

    async def write(self, offset: int, parts: Sequence[Buffer], *, direct: bool = False) -> None:
        data = b"".join(parts)
        middle = self._disk.random.randrange(len(data) + 1)
        for at, piece in ((offset, data[:middle]), (offset + middle, data[middle:])):
            await self._disk.pause()
            assert at + len(piece) <= len(self._now), "a write beyond what was allocated"
            assert not piece or at // _UNIT_BYTES not in self._released, "a write into a hole"
            self._now[at : at + len(piece)] = piece
            self._unsynced.append((at, piece))

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        for offset, parts in writes:
            await self.write(offset, parts)
        before = list(self._unsynced)
        await self._disk.pause()
        for offset, data in before:
            self._durable[offset : offset + len(data)] = data
        self._unsynced = self._unsynced[len(before) :]

    async def allocate(self, offset: int, length: int) -> None:
        await self._disk.pause()
        units = self._released & set(range(offset // _UNIT_BYTES, (offset + length) // _UNIT_BYTES))
        if max(0, offset + length - len(self._now)) + len(units) * _UNIT_BYTES > self._disk.free_bytes():
            raise NoSpace("full")
        self._released -= units
        for content in (self._now, self._durable):
            content.extend(bytes(max(0, offset + length - len(content))))

    async def release(self, offset: int, length: int) -> None:
        await self._disk.pause()
        self._released.update(range(offset // _UNIT_BYTES, (offset + length) // _UNIT_BYTES))
        self._now[offset : offset + length] = bytes(length)
        self._unsynced = [(at, data) for at, data in self._unsynced if not offset <= at < offset + length]

    def size(self) -> int:
        return len(self._now)

    def allocated(self) -> int:
        return len(self._now) - len(self._released) * _UNIT_BYTES

    async def close(self) -> None:
        pass

    def flip(self, bit: int) -> None:
        """Bit rot."""
        self._now[bit // 8] ^= 1 << bit % 8

    def forget(self, source: random.Random) -> None:
        for offset, data in self._unsynced:
            for at in range(0, len(data), _SECTOR_BYTES):
                if source.random() < 0.5:
                    sector = data[at : at + _SECTOR_BYTES]
                    self._durable[offset + at : offset + at + len(sector)] = sector
        self._unsynced = []
        self._now = bytearray(self._durable)

    def _read(self, offset: int, into: memoryview) -> int:
        data = self._now[offset : offset + len(into)]
        into[: len(data)] = data
        return len(data)


class LossyTable:
    """After a crash the writes are there up to some moment, at least up to the last flush."""

    def __init__(self, disk: LossyDisk) -> None:
        self.written = 0
        self.durable = 0
        self.failure: ThreefsError | None = None
        self._disk = disk
        self._rows: dict[bytes, bytes] = {}
        self._undone: list[dict[bytes, bytes | None]] = []  # what each write since the last flush took the place of

    async def opened(self, path: Path) -> "LossyTable":
        """For `ChunkEngine.open`."""
        return self

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        keys = sorted((key for key in self._rows if begin <= key < end), reverse=reverse)
        return [(key, self._rows[key]) for key in (keys[:limit] if limit else keys)]

    def write(self, changes: Mapping[bytes, bytes | None]) -> int:
        if self._disk.lost_power:
            raise Unavailable("the power is off")
        self._undone.append({key: self._rows.get(key) for key in changes})
        self._apply(changes)
        self.written += 1
        return self.written

    async def flush(self, number: int | None = None) -> None:
        if number is not None and number <= self.durable:
            return
        reached = self.written
        try:
            await self._disk.pause()
        except DiskFailed:
            raise Unavailable("the power is off") from None
        if reached > self.durable:
            self._undone = self._undone[reached - self.durable :]
            self.durable = reached

    async def reopen(self) -> None:
        """It has room of its own."""

    async def close(self) -> None:
        await self.flush()

    def restore_power(self) -> None:
        for _ in range(self._disk.random.randrange(len(self._undone) + 1)):
            self._apply(self._undone.pop())
        self._undone = []
        self.durable = self.written

    def _apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
