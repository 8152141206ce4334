"""The data files of a target: one per block size, a power of two from 64 KiB to 64 MiB."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from threefs.env.disk import Disk, DiskSpace, File
from threefs.errors import DiskFailed, NoSpace
from threefs_storage.engine.block_allocator import BlockAllocator
from threefs_storage.engine.chunk_record import Block

MIN_BLOCK_BITS = 16
MAX_BLOCK_BITS = 26

_MIN_GROWTH_BYTES = 4 << 20
_MAX_GROWTH_BYTES = 256 << 20


def block_bits(length: int) -> int:
    """The size, as a power of two, of the smallest block that holds `length` bytes."""
    return max(MIN_BLOCK_BITS, (length - 1).bit_length())


@dataclass(frozen=True, slots=True)
class Space:
    capacity_bytes: int  # of the disk
    used_bytes: int  # by this target
    free_bytes: int  # of the disk, with `reusable_bytes`
    chunks: int  # that exist here
    reusable_bytes: int  # in free blocks of this target's files
    disk: str = ""  # identifies the disk: equal for all directories on it


class BlockFiles:
    """Files in `directory`, which is gone when its store was quarantined or deleted. So the disk is asked for its room
    where all stores of the process are, in `data_dir`."""

    def __init__(self, directory: Path, data_dir: Path, disk: Disk, full_ratio: float) -> None:
        self._directory = directory
        self._data_dir = data_dir
        self._disk = disk
        self._disk_name = ""  # not known yet
        self.full_ratio = full_ratio
        self.on_failure: Callable[[DiskFailed], None] = lambda error: None
        self._files: dict[int, File] = {}
        self._allocators = {bits: BlockAllocator() for bits in range(MIN_BLOCK_BITS, MAX_BLOCK_BITS + 1)}
        self._growing = asyncio.Lock()
        self._refused_bits: int | None = None  # size of the block that was refused last

    async def open(self) -> None:
        await self._disk.make_directory(self._directory)
        names = await self._disk.list_directory(self._directory)
        for bits, allocator in self._allocators.items():
            if _name(bits) in names:
                file = await self._open(bits)
                allocator.grow(file.size() >> bits, holes=file.allocated() < file.size())

    async def prepare(self) -> None:
        """Open the files of all claimed blocks. A missing file is created: reads of its blocks fail then, one by
        one."""
        for bits, allocator in self._allocators.items():
            if allocator.used:
                await self._open(bits)
            for slot, count in allocator.all_holes():  # some of them may have room on the disk
                await self._files[bits].release(slot << bits, count << bits)

    async def close(self) -> None:
        for file in self._files.values():
            await file.close()

    def file(self, block: Block) -> File:
        return self._files[block.bits]

    def claim(self, block: Block) -> None:
        """Mark a block that a record names. All are claimed before the first block is taken."""
        self._allocators[block.bits].claim(block.slot)

    async def take(self, bits: int, durable: int, *, reserve: bool) -> Block:
        """A free block. With `reserve` it may use the reserve of the disk, too. Raises NoSpace."""
        allocator = self._allocators[bits]
        slot = allocator.take(durable)
        if slot is None:
            async with self._growing:
                slot = allocator.take(durable)
                while slot is None:
                    try:
                        await self._grow(bits, durable, reserve)
                    except NoSpace:
                        self._refused_bits = bits
                        raise
                    slot = allocator.take(durable)
        return Block(bits, slot)

    def is_pinned(self, block: Block) -> bool:
        """Whether a read uses the block."""
        return self._allocators[block.bits].is_pinned(block.slot)

    def free(self, block: Block, number: int) -> None:
        """Free a block with table write `number`. It is reused when that is durable and no read has it pinned."""
        self._allocators[block.bits].free(block.slot, number)

    def withhold(self, block: Block) -> bool:
        """Keep a freed block in use until the next start: no chunk gets it. Returns whether it is one, or was."""
        return self._allocators[block.bits].withhold(block.slot)

    def pin(self, block: Block) -> None:
        self._allocators[block.bits].pin(block.slot)

    def unpin(self, block: Block) -> None:
        self._allocators[block.bits].unpin(block.slot)

    def has_freed_blocks(self) -> bool:
        """Whether a flush of the table may make blocks free."""
        return any(allocator.freed for allocator in self._allocators.values())

    def used_bytes(self) -> int:
        return sum(allocator.used << bits for bits, allocator in self._allocators.items())

    def unused_bytes(self) -> int:
        """Bytes of free blocks in the files."""
        return sum(a.free_slots << bits for bits, a in self._allocators.items())

    def space(self, beside_bytes: int, chunks: int) -> Space:
        """That of the target, which has so many bytes beside the files. Freed blocks count as free: the next flush may
        be far away. Raises DiskFailed."""
        freed = self._freed_bytes()
        disk, reusable = self._disk_space(), self.unused_bytes() + freed
        used = self.used_bytes() - freed + beside_bytes
        return Space(disk.capacity_bytes, used, disk.free_bytes + reusable, chunks, reusable, disk.disk)

    @property
    def full(self) -> bool:
        """Whether a block was refused to a client, and would be again."""
        if self._refused_bits is not None and self.room_bytes() >= 1 << self._refused_bits:
            self._refused_bits = None
        return self._refused_bits is not None

    def room_bytes(self) -> int:
        """Bytes that clients' writes may take; negative if a part of the reserve is in use. On a disk that does not say
        any more what it has, none: it has failed. Nobody who asks for room expects an error."""
        try:
            space = self._disk_space()
        except DiskFailed as error:
            self.on_failure(error)
            return 0
        return space.free_bytes + self.unused_bytes() + self._freed_bytes() - self._reserved_bytes(space)

    def has_room_beside(self, length: int, *, reserve: bool) -> bool:
        """Whether that many bytes may be written beside the files. With `reserve`, half of the reserve of the disk may
        be used; the other half is for blocks and records."""
        space = self._disk_space()
        kept_free = self._reserved_bytes(space)
        return space.free_bytes - length >= (kept_free // 2 if reserve else kept_free)

    def _disk_space(self) -> DiskSpace:
        """Raises DiskFailed, also if another disk is there now: the one with the files is not mounted any more."""
        space = self._disk.space(self._data_dir)
        self._disk_name = self._disk_name or space.disk
        if space.disk != self._disk_name:
            raise DiskFailed(f"another disk is mounted at {self._data_dir}")
        return space

    def _freed_bytes(self) -> int:
        """Bytes that will be unused when the table is flushed."""
        return sum(allocator.freed << bits for bits, allocator in self._allocators.items())

    async def release_free_blocks(self, durable: int) -> None:
        """Release the room of all free blocks to the disk."""
        async with self._growing:
            await self._punch_holes(durable)

    async def release_unneeded_blocks(self, durable: int) -> None:
        """Release to the disk the room of those free blocks that were not needed since the last call."""
        async with self._growing:
            for bits, allocator in self._allocators.items():
                for slot, count in allocator.punch_unneeded(durable, _MIN_GROWTH_BYTES >> bits):
                    await self._files[bits].release(slot << bits, count << bits)

    def _reserved_bytes(self, space: DiskSpace) -> int:
        return int(space.capacity_bytes * (1 - self.full_ratio))

    async def _open(self, bits: int) -> File:
        file = self._files.get(bits)
        if file is None:
            file = self._files[bits] = await self._disk.open(self._directory / _name(bits))
        return file

    async def _grow(self, bits: int, durable: int, reserve: bool) -> None:
        """Allocate more blocks: many if the disk has room for them, at least one. Raises NoSpace."""
        file, allocator = await self._open(bits), self._allocators[bits]
        step = min(max(allocator.capacity << bits >> 2, _MIN_GROWTH_BYTES), _MAX_GROWTH_BYTES)
        for slots in (max(1, step >> bits), 1):
            hole = allocator.first_hole(slots)
            first, count = hole or (allocator.capacity, slots)
            if not await self._allocate(file, first << bits, count << bits, reserve):
                continue
            if hole is None:
                allocator.grow(count)
            else:
                allocator.fill(first, count)
            return
        if not await self._punch_holes(durable):
            raise NoSpace(f"no room for a block of {1 << bits} bytes in {self._directory}")

    async def _allocate(self, file: File, offset: int, length: int, reserve: bool) -> bool:
        space = self._disk_space()
        kept_free = 0 if reserve else self._reserved_bytes(space)
        if space.free_bytes - length < kept_free:
            return False
        try:
            await file.allocate(offset, length)
        except NoSpace:  # there is a quota, or others have taken the room meanwhile
            await file.release(offset, length)  # a part was allocated: all that the disk had left
            return False
        return True

    async def _punch_holes(self, durable: int) -> bool:
        """Release the room of all free blocks of all sizes to the disk. Returns whether there were any."""
        dug = False
        for bits, allocator in self._allocators.items():
            for slot, count in allocator.punch_holes(durable):
                await self._files[bits].release(slot << bits, count << bits)
                dug = True
        return dug


def _name(bits: int) -> str:
    return f"{1 << bits >> 10}KiB.blocks"
