"""The disk of a simulated host. It outlives processes; what was not synced does not outlive a power cut.

An operation takes time and has its effect at its end, in the kernel. If its process is killed meanwhile it is done,
done in part, or not at all, and that is decided in the same moment: nothing of a dead process happens later.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threefs_storage.engine.chunk_record import Block, Record, Version, decode
from threefs_storage.engine.overlay import BlobKey

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.content import Content
from tests.harness.simulated.loop import KERNEL, PROCESS, Process, SimLoop
from tests.harness.simulated.record_rows import Rows
from tests.harness.simulated.version_bytes import assemble, shown_ranges
from threefs.checksums import Buffer, crc32c
from threefs.env.disk import DIRECT_BYTES, LEAVING, DiskSpace, Write, is_aligned, run_to_completion
from threefs.errors import Corrupt, DiskFailed, NoSpace
from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK

CHUNK_KEY_BYTES = 12
DISK_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class _Operation:
    kind: str
    effect: Callable[[], Any]
    torn: Callable[[], Any] | None
    failed: Callable[[], Any] | None
    done: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class Image:
    """A copy of a disk."""

    files: dict[Path, Content]
    tables: dict[Path, Rows]
    directories: set[Path]


class SimDisk:
    """threefs.env.disk.Disk."""

    def __init__(
        self, loop: SimLoop, random: SeededRandom, *, capacity_bytes: int = DISK_BYTES, name: str = "disk"
    ) -> None:
        self.loop = loop
        self.random = random
        self.capacity_bytes = capacity_bytes
        self.quota_bytes: int | None = None  # with one, the disk takes less than it says that it has room for
        self.full_found_late = 0.0  # the share of writes to tables that find room, though only the sync finds none
        self.delay_s = (0.00005, 0.0005)
        self.dragging: tuple[float, float] | None = None  # takes the place of that for a while
        self._held: list[tuple[_Operation, dict[_Operation, None]]] | None = None  # while it hangs: what would be done
        self._hangs = ""  # what kind of it; "" is all
        self.cold = 0.1  # the share of reads that find nothing in memory
        self.failing: set[str] = set()  # "read", "write", "sync", "allocate", "space": these fail with EIO
        self.failing_once: set[str] = set()  # the next one of these does
        self.files: dict[Path, Content] = {}
        self.tables: dict[Path, Rows] = {}
        self.rotten = 0  # bits that have flipped
        self.rotten_records = 0  # of these, in records
        self.direct_transfers = 0
        self._name = name
        self._directories = {Path("/")}
        self._under_way: dict[Process | None, dict[_Operation, None]] = {}

    async def open(self, path: Path) -> "SimFile":
        await self.wait()
        if path.parent not in self._directories:
            raise DiskFailed(f"{path}: no such directory")
        content = self.files.get(path)
        if content is None:
            content = self.files[path] = Content(self.room_bytes)
        return SimFile(self, content)

    async def make_directory(self, path: Path) -> None:
        await self.wait()
        self._directories.update((path, *path.parents))

    async def remove_directory(self, path: Path) -> None:
        """It gets another name before what is in it goes, bit by bit: so a crash leaves it whole, or a part of it under
        that name."""
        leaving = path.with_name(f"{path.name}{LEAVING}")

        def leave() -> None:
            self._forget(leaving)
            self.files = {_moved(file, path, leaving): content for file, content in self.files.items()}
            self.tables = {_moved(table, path, leaving): rows for table, rows in self.tables.items()}
            self._directories = {_moved(each, path, leaving) for each in self._directories}

        def gone() -> None:
            self._forget(path)
            self._forget(leaving)

        await self.do(gone, kind="remove", torn=leave)

    def _forget(self, path: Path) -> None:
        self.files = {file: content for file, content in self.files.items() if path not in file.parents}
        self.tables = {table: rows for table, rows in self.tables.items() if path not in table.parents}
        self._directories = {d for d in self._directories if path != d and path not in d.parents}

    def half_removed(self) -> list[Path]:
        """What crashes have left of directories whose removal had begun."""
        return sorted(each for each in self._directories if each.name.endswith(LEAVING))

    async def list_directory(self, path: Path) -> list[str]:
        await self.wait()
        return sorted(entry.name for entry in (*self.files, *self._directories) if entry.parent == path != entry)

    async def directory_bytes(self, path: Path) -> int:
        await self.wait()
        files = sum(content.allocated() for file, content in self.files.items() if path in file.parents)
        return files + sum(rows.size_bytes for table, rows in self.tables.items() if path in table.parents)

    def space(self, path: Path) -> DiskSpace:
        if path not in self._directories and path not in self.files:
            raise DiskFailed(f"{path}: no such file or directory")
        if "space" in self.failing:
            raise DiskFailed(f"{path}: input/output error (space)")
        return DiskSpace(self.capacity_bytes, max(0, self.free_bytes()), self._name)

    def free_bytes(self) -> int:
        taken = sum(content.allocated() for content in self.files.values())
        return self.capacity_bytes - taken - sum(rows.size_bytes for rows in self.tables.values())

    def room_bytes(self) -> int:
        """What it would take; it may say that it has more."""
        free = self.free_bytes()
        return free if self.quota_bytes is None else min(free, self.quota_bytes - (self.capacity_bytes - free))

    def unreserved(self) -> int:
        """How many units of room were taken by writes that had not reserved it."""
        return sum(content.unreserved for content in self.files.values())

    async def wait(self) -> None:
        await asyncio.sleep(self.latency_s())

    def hang(self, kind: str = "") -> None:
        """Nothing is done any more until `wake`; or nothing of that kind."""
        self._hangs = kind
        if self._held is None:
            self._held = []

    def wake(self) -> None:
        held, self._held = self._held or [], None
        for operation, under_way in held:
            self._end(operation, under_way)

    def latency_s(self) -> float:
        return self.random.uniform(*(self.dragging or self.delay_s))

    def fails(self, kind: str) -> bool:
        """Whether an operation of that kind is to fail now."""
        if kind in self.failing_once:
            self.failing_once.discard(kind)
            return True
        return kind in self.failing

    async def do(
        self,
        effect: Callable[[], Any],
        *,
        kind: str,
        torn: Callable[[], Any] | None = None,
        failed: Callable[[], Any] | None = None,
    ) -> Any:
        """Let `effect` happen after a while. `torn` is what may happen instead if the process is killed before, and
        `failed` what happens instead if the disk fails. A cancelled caller goes on when it is over, as with a real
        disk."""
        process = PROCESS.get()
        under_way = self._under_way.get(process)
        if under_way is None:
            under_way = self._under_way[process] = {}
            if process is not None:
                process.on_kill[lambda: self._killed(process)] = None
        operation = _Operation(kind, effect, torn, failed, self.loop.create_future())
        under_way[operation] = None
        self.loop.call_later(self.latency_s(), self._end, operation, under_way, context=KERNEL)
        return await run_to_completion(operation.done)

    def _end(self, operation: _Operation, under_way: dict[_Operation, None]) -> None:
        if operation not in under_way:
            return  # its process was killed
        if self._held is not None and self._hangs in ("", operation.kind):
            self._held.append((operation, under_way))
            return
        del under_way[operation]
        if self.fails(operation.kind):
            _try(operation.failed)
            operation.done.set_exception(DiskFailed(f"input/output error ({operation.kind})"))
            return
        try:
            result = operation.effect()
        except NoSpace as error:
            operation.done.set_exception(error)
        else:
            operation.done.set_result(result)

    def _killed(self, process: Process) -> None:
        under_way = self._under_way.pop(process)
        operations = list(under_way)
        under_way.clear()
        for operation in operations:
            ends = (
                [operation.torn, None] if operation.kind in self.failing else [operation.effect, operation.torn, None]
            )
            _try(ends[self.random.below(len(ends))])

    def cut_power(self) -> None:
        """The processes are to be killed before."""
        for content in self.files.values():
            content.forget_unsynced(self.random)
        for rows in self.tables.values():
            rows.forget_unsynced(self.random)

    def rot(self, random: SeededRandom) -> str | None:
        """Flip one bit of a record, or of the content that one names. Where, if there is any."""
        return (self.rot_content(random) if random.chance(0.7) else None) or self.rot_record(random)

    def rot_content(self, random: SeededRandom) -> str | None:
        """Flip one bit of what a committed version names. Where, if there is any."""
        found = self.copies()
        if not found:
            return None
        path, chunk, version = found[random.below(len(found))]
        return self.flip(random, path, chunk, version)

    def flip(self, random: SeededRandom, path: Path, chunk: ChunkId, version: Version) -> str:
        """Turn over one bit of that version in that store."""
        ranges = shown_ranges(version)
        begin, end, extent = ranges[random.below(len(ranges))]
        bit = random.below((end - begin) * 8)
        self.rotten += 1
        if extent is None:
            block = version.block
            assert block is not None
            bit += ((block.slot << block.bits) + begin) * 8
            data = _data_file(path, block)
            self.files[data].flip(bit)
            return f"bit {bit} of {data}"
        key = BlobKey(chunk, extent.blob)
        bit += extent.blob_offset * 8
        flipped = bytearray(self.tables[path].values[key.encoded()])
        flipped[bit // 8] ^= 1 << bit % 8
        self.tables[path].values[key.encoded()] = bytes(flipped)
        return f"bit {bit} of {key} in {path}"

    def copies(self) -> list[tuple[Path, ChunkId, Version]]:
        """Committed content, by the store that it is in. Without fences: those of one file are chunks of the same name
        on several chains, and nobody could tell which of them are copies of each other."""
        return [
            (path, ChunkId.of_key(key), version)
            for path, key, record in self._records()
            if (version := record.committed) is not None and shown_ranges(version)
            if ChunkId.of_key(key).number != FENCE_CHUNK
        ]

    def is_good(self, path: Path, chunk: ChunkId, version: Version) -> bool:
        """Whether the bytes of a version are as they were written."""

        def of_block(begin: int, end: int) -> bytes:
            assert version.block is not None
            content = self.files.get(_data_file(path, version.block))
            place = (version.block.slot << version.block.bits) + begin
            return b"" if content is None else content.bytes_at(place, end - begin)

        values = self.tables[path].values
        content = assemble(version, of_block, lambda number: values.get(BlobKey(chunk, number).encoded(), b""))
        return crc32c(content) == version.checksum

    def rot_record(self, random: SeededRandom) -> str | None:
        """Flip one bit of a record. Where, if there is any."""
        found = [(path, key) for path, key, _ in self._records()]
        if not found:
            return None
        path, key = found[random.below(len(found))]
        flipped = bytearray(self.tables[path].values[key])
        bit = random.below(len(flipped) * 8)
        flipped[bit // 8] ^= 1 << bit % 8
        self.tables[path].values[key] = bytes(flipped)
        self.rotten += 1
        self.rotten_records += 1
        return f"bit {bit} of the record of {ChunkId.of_key(key)} in {path}"

    def _records(self) -> list[tuple[Path, bytes, Record]]:
        """All chunk records that are not damaged, by table and key."""
        found = []
        for path, rows in self.tables.items():
            for key in rows.keys:
                if len(key) == CHUNK_KEY_BYTES:
                    with contextlib.suppress(Corrupt):
                        found.append((path, key, decode(ChunkId.of_key(key), rows.values[key])))
        return found

    def copied(self) -> Image:
        """All that is on the disk now, to be put back later."""
        return Image(
            {path: content.copied() for path, content in self.files.items()},
            {path: rows.copied() for path, rows in self.tables.items()},
            set(self._directories),
        )

    def restore(self, image: Image) -> None:
        """The disk is as it was when that was copied. No process may use it."""
        self.files = {path: content.copied() for path, content in image.files.items()}
        self.tables = {path: rows.copied() for path, rows in image.tables.items()}
        self._directories = set(image.directories)

    def wipe(self) -> None:
        """A new disk is put in the place of this one."""
        self.files.clear()
        self.tables.clear()


def _moved(path: Path, directory: Path, to: Path) -> Path:
    return to / path.relative_to(directory) if path == directory or directory in path.parents else path


def _data_file(table: Path, block: Block) -> Path:
    return table.parent / "blocks" / f"{1 << block.bits >> 10}KiB.blocks"


def _try(effect: Callable[[], Any] | None) -> None:
    """Nobody waits for its result any more."""
    if effect is not None:
        with contextlib.suppress(NoSpace):
            effect()


class SimFile:
    """threefs.env.disk.File: one opening of a file by one process."""

    def __init__(self, disk: SimDisk, content: Content) -> None:
        self._disk = disk
        self.content = content
        self._closed = False

    def _check_open(self, what: str) -> None:
        """The descriptor of a real file may be that of another one by then. An error of a disk is nothing unusual in a
        simulation, so this is told besides."""
        if self._closed:
            self._disk.loop.failures.append(f"{what} a file that was closed")
            raise DiskFailed(f"bad descriptor: {what} a file that was closed")

    def read_now(self, offset: int, into: memoryview) -> int:
        if "read" in self._disk.failing or self._disk.random.chance(self._disk.cold):
            return 0
        return self.content.read(offset, into)

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        if direct:
            self._check_direct(offset, [into])
        count: int = await self._disk.do(lambda: self.content.read(offset, into), kind="read")
        return count

    async def write(self, offset: int, parts: Sequence[Buffer], *, direct: bool = False) -> None:
        if direct:
            self._check_direct(offset, parts)
        await self._write([(offset, parts)])

    def _check_direct(self, offset: int, parts: Sequence[Buffer]) -> None:
        """A kernel refuses other transfers with EINVAL. A real file lets them go through the page cache instead, so
        nobody would see that all of them do; and an error of a disk is nothing unusual in a simulation."""
        self._disk.direct_transfers += 1
        if offset % DIRECT_BYTES or not all(map(is_aligned, parts)):
            refused = f"a direct transfer of {list(map(len, parts))} bytes at {offset} is not aligned"
            self._disk.loop.failures.append(refused)
            raise DiskFailed(f"invalid argument: {refused}")

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        self._check_open("sync of")
        if writes:
            await self._write(writes)
        content, number = self.content, self.content.number
        await self._disk.do(
            lambda: content.sync(number),
            kind="sync",
            failed=lambda: content.fail_sync(number, self._disk.random),
        )

    def sync_now(self, writes: Sequence[Write]) -> bool:
        return False  # what goes on meanwhile is what there is to explore

    async def _write(self, writes: Sequence[Write]) -> None:
        self._check_open("write into")

        # The memory is looked at in the end, so that a caller who uses it again too early is found out.
        def write() -> None:
            for offset, parts in writes:
                self.content.write(offset, b"".join(parts))

        def torn() -> None:
            *whole, (offset, parts) = writes[: 1 + self._disk.random.below(len(writes))]
            for done, its in whole:
                self.content.write(done, b"".join(its))
            data = b"".join(parts)
            self.content.write(offset, data[: self._disk.random.below(len(data) + 1)])

        await self._disk.do(write, kind="write", torn=torn, failed=torn if self._disk.random.chance(0.5) else None)

    async def allocate(self, offset: int, length: int) -> None:
        self._check_open("allocation in")
        await self._disk.do(lambda: self.content.allocate(offset, length), kind="allocate")

    async def release(self, offset: int, length: int) -> None:
        self._check_open("hole in")
        await self._disk.do(lambda: self.content.release(offset, length), kind="write")

    def size(self) -> int:
        return self.content.size

    def allocated(self) -> int:
        return self.content.allocated()

    async def close(self) -> None:
        self._closed = True
