import asyncio
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.block_files import MAX_BLOCK_BITS, BlockFiles, block_bits
from threefs_storage.engine.chunk_record import Block

from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated_disk import new_disk, simulate
from threefs.errors import DiskFailed, NoSpace
from threefs.layout import MAX_CHUNK_BYTES

TARGET = Path("/target")
MIB = 1 << 20


@pytest.mark.parametrize(
    ("length", "bits"), [(1, 16), (65536, 16), (65537, 17), (MIB, 20), (MIB + 1, 21), (MAX_CHUNK_BYTES, MAX_BLOCK_BITS)]
)
def test_the_smallest_block_that_holds_it(length: int, bits: int) -> None:
    assert block_bits(length) == bits


async def opened(disk: SimDisk) -> BlockFiles:
    files = BlockFiles(TARGET / "blocks", TARGET.parent, disk, full_ratio=0.98)
    await files.open()
    return files


def test_files_grow_and_free_blocks_are_found_again_after_reopening() -> None:
    async def main() -> None:
        disk = new_disk()
        files = await opened(disk)
        blocks = [await files.take(20, 0, reserve=False) for _ in range(10)]
        assert blocks == [Block(20, slot) for slot in range(10)]
        assert files.used_bytes() == 10 * MIB
        assert files.file(blocks[9]).size() >= 10 * MIB

        files = await opened(disk)
        files.claim(Block(20, 0))
        await files.prepare()
        assert await files.take(20, 0, reserve=False) == Block(20, 1)
        assert files.used_bytes() == 2 * MIB
        assert files.used_bytes() + files.unused_bytes() == files.file(Block(20, 0)).size()

    simulate(main())


def test_tasks_that_take_at_the_same_time_get_different_blocks() -> None:
    async def main() -> None:
        files = await opened(new_disk())
        blocks = await asyncio.gather(*(files.take(22, 0, reserve=False) for _ in range(20)))
        assert len(set(blocks)) == 20

    simulate(main())


def test_a_nearly_full_disk_has_room_only_for_resync() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=100 * MIB)
        files = await opened(disk)
        with pytest.raises(NoSpace):
            for _ in range(101):
                await files.take(20, 0, reserve=False)
        assert files.used_bytes() == 98 * MIB
        assert [(await files.take(20, 0, reserve=True)).slot for _ in range(2)] == [98, 99]
        with pytest.raises(NoSpace):
            await files.take(20, 0, reserve=True)
        files.free(Block(20, 5), 0)
        assert await files.take(20, 0, reserve=False) == Block(20, 5), "a free block needs no more of the disk"

    simulate(main())


def test_growth_that_the_disk_refuses_leaves_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 keeps what it has allocated before there was no room: nothing was left for records."""

    async def main() -> None:
        disk = new_disk(capacity_bytes=100 * MIB)
        files = await opened(disk)
        file: Any = files.file(await files.take(20, 0, reserve=False))
        allocate, free = file.allocate, disk.free_bytes()

        async def refuse(offset: int, length: int) -> None:
            await allocate(offset, length // 2)
            raise NoSpace("full")

        monkeypatch.setattr(file, "allocate", refuse)
        with pytest.raises(NoSpace):
            for _ in range(10):
                await files.take(20, 0, reserve=False)
        assert disk.free_bytes() == free

    simulate(main())


def test_pins_keep_a_freed_block() -> None:
    async def main() -> None:
        files = await opened(new_disk())
        block = await files.take(16, 0, reserve=False)
        files.pin(block)
        files.free(block, 0)
        assert files.has_freed_blocks()
        assert await files.take(16, 0, reserve=False) != block
        files.unpin(block)
        assert await files.take(16, 0, reserve=False) == block

    simulate(main())


def test_a_block_of_a_lost_file_can_be_claimed() -> None:
    async def main() -> None:
        files = await opened(new_disk())
        files.claim(Block(18, 3))
        await files.prepare()
        assert files.file(Block(18, 3)).read_now(3 << 18, memoryview(bytearray(10))) == 0

    simulate(main())


def test_blocks_that_stay_free_go_back_to_the_disk_and_are_no_less_free_for_that() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=100 * MIB)
        files = await opened(disk)
        blocks = [await files.take(20, 0, reserve=False) for _ in range(60)]
        for block in blocks[10:]:
            files.free(block, 1)
        room = files.room_bytes()
        await files.release_unneeded_blocks(1)
        assert disk.free_bytes() < 45 * MIB, "they may be needed again at once"
        await files.release_unneeded_blocks(1)
        assert disk.free_bytes() == 86 * MIB and files.unused_bytes() == 4 * MIB
        assert files.room_bytes() == room
        again = [await files.take(20, 1, reserve=False) for _ in range(50)]
        assert len(set(again) | set(blocks[:10])) == 60

    simulate(main())


def test_free_blocks_of_one_size_make_room_for_another_and_can_be_used_again() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=100 * MIB)
        files = await opened(disk)
        small = [await files.take(20, 0, reserve=False) for _ in range(98)]
        with pytest.raises(NoSpace):
            await files.take(22, 0, reserve=False)
        for block in small[10:90]:
            files.free(block, 1)
        with pytest.raises(NoSpace):
            await files.take(22, 0, reserve=False)
        large = [await files.take(22, 1, reserve=False) for _ in range(20)]
        assert files.used_bytes() == 98 * MIB
        with pytest.raises(NoSpace):
            await files.take(20, 1, reserve=False)

        files = await opened(disk)
        for block in small[:10] + large[:10]:
            files.claim(block)
        await files.prepare()
        again = [await files.take(20, 0, reserve=False) for _ in range(40)]
        assert not set(again) & set(small[:10])
        assert files.used_bytes() == 90 * MIB
        assert disk.free_bytes() + files.unused_bytes() == 10 * MIB

    simulate(main())


def test_a_disk_that_is_not_mounted_any_more_has_failed() -> None:
    """Below an empty mount point is the disk of the system, which has room, too."""

    async def main() -> None:
        disk, failures = new_disk(), list[DiskFailed]()
        files = await opened(disk)
        files.on_failure = failures.append
        assert files.room_bytes()
        disk._name = "the disk of the system"
        assert not files.room_bytes() and len(failures) == 1
        with pytest.raises(DiskFailed, match="another disk is mounted"):
            files.space(0, 0)

    simulate(main())
