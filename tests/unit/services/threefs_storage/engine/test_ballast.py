import contextlib
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.ballast import Ballast
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.chunk_engine import put
from tests.harness.rpc import run
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated_disk import new_disk, simulate
from tests.harness.small_disk import small_disk
from threefs.env.disk import RealDisk
from threefs.errors import NoSpace
from threefs.ids import ChunkId

MIB = 1 << 20
ROOT = Path("/")


def test_it_takes_room_only_where_there_is_plenty_and_gives_it_back() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=10 * MIB)
        other = await disk.open(ROOT / "other")
        await other.allocate(0, 7 * MIB)
        ballast = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert not await ballast.allocate() and not ballast.allocated, "less than twice as much is free"
        assert disk.free_bytes() == 3 * MIB
        await other.release(0, MIB)
        assert await ballast.allocate() and ballast.allocated
        assert disk.free_bytes() == 2 * MIB
        await ballast.release()
        assert not ballast.allocated and disk.free_bytes() == 4 * MIB
        assert await ballast.allocate()

        again = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert await again.allocate(), "after a restart it is still there"
        assert disk.free_bytes() == 2 * MIB
        await again.close()

    simulate(main())


def test_room_that_a_disk_with_a_quota_has_not_is_found_out() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=10 * MIB)
        ballast = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert await ballast.allocate() and await ballast.takes(4 * MIB)
        assert disk.free_bytes() == 8 * MIB, "it was only tried"
        disk.quota_bytes = 5 * MIB
        assert not await ballast.takes(4 * MIB) and await ballast.takes(2 * MIB) and ballast.allocated
        await ballast.close()
        assert await ballast.takes(4 * MIB), "a closed store says nothing of the disk"

    simulate(main())


class PartlyGiven:
    """A disk that refuses an allocation after it has given all that it had, as ext4 does behind a quota."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.space = disk.space

    async def open(self, path: Path) -> Any:
        file = await self._disk.open(path)
        allocate = file.allocate

        async def allocate_part(offset: int, length: int) -> None:
            await allocate(offset, min(length, self._disk.room_bytes()))
            if length > self._disk.room_bytes():
                raise NoSpace("quota")

        file.allocate = allocate_part  # type: ignore[method-assign]
        return file


def test_what_a_quota_gives_of_the_ballast_is_given_back_for_removals() -> None:
    """Else it would be in nobody's account, and no removal would find room."""

    async def main() -> None:
        disk = new_disk(capacity_bytes=100 * MIB)
        disk.quota_bytes = MIB
        ballast = Ballast(ROOT / "ballast", PartlyGiven(disk), 2 * MIB)  # type: ignore[arg-type]
        assert not await ballast.allocate() and disk.room_bytes() == MIB

    simulate(main())


class Table:
    def __init__(self) -> None:
        self.room_bytes = MIB
        self.shortened = 0

    async def room_to_open(self) -> int:
        return self.room_bytes

    async def shorten_log(self) -> None:
        self.shortened += 1


def test_the_room_for_a_long_log_is_held_where_the_disk_gives_it() -> None:
    async def main() -> None:
        disk, table = new_disk(capacity_bytes=200 * MIB), Table()
        ballast = Ballast(ROOT / "ballast", disk, 16 * MIB)
        await ballast.limit_log(table, is_nearly_full=False)
        assert table.shortened == 1, "there is no ballast yet"
        assert await ballast.allocate()
        await ballast.limit_log(table, is_nearly_full=False)
        assert disk.free_bytes() == 184 * MIB, "it has room for a short log"
        table.room_bytes = 30 * MIB
        await ballast.limit_log(table, is_nearly_full=False)
        assert disk.free_bytes() == 136 * MIB and table.shortened == 1
        assert await ballast.takes(136 * MIB) and not await ballast.takes(137 * MIB)
        disk.quota_bytes = 90 * MIB
        table.room_bytes = 70 * MIB
        await ballast.limit_log(table, is_nearly_full=False)
        assert disk.free_bytes() == 184 * MIB and table.shortened == 2, "a quota refuses more"
        disk.quota_bytes = None
        await ballast.limit_log(table, is_nearly_full=False)
        assert disk.free_bytes() == 104 * MIB
        await ballast.limit_log(table, is_nearly_full=True)
        assert disk.free_bytes() == 184 * MIB and table.shortened == 3
        table.room_bytes = 30 * MIB
        await ballast.limit_log(table, is_nearly_full=False)
        await ballast.release()
        assert disk.free_bytes() == 200 * MIB
        await ballast.limit_log(table, is_nearly_full=False)
        assert disk.free_bytes() == 200 * MIB and table.shortened == 4, "on a full disk nothing is held"

    simulate(main())


def test_room_that_a_crash_has_left_allocated_does_not_pass_for_ballast() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=10 * MIB)
        await (await disk.open(ROOT / "ballast")).allocate(2 * MIB, 4 * MIB)
        ballast = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert await ballast.allocate() and disk.free_bytes() == 8 * MIB
        await ballast.release()
        assert disk.free_bytes() == 10 * MIB

    simulate(main())


def test_without_a_size_it_needs_no_file() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=0)
        ballast = Ballast(ROOT / "ballast", disk, 0)
        assert ballast.allocated and await ballast.allocate()
        await ballast.release()
        await ballast.close()
        assert not disk.files

    simulate(main())


def test_a_store_is_opened_on_a_disk_that_others_have_filled(tmp_path: Path) -> None:
    """It has to be, for files to be removed."""

    async def main(root: Path) -> None:
        disk, settings = RealDisk(threads=1), EngineSettings(ballast_bytes=4 * MIB)
        engine = await ChunkEngine.open(root / "target-1", disk, settings)
        chunk = ChunkId(7, 0)
        await put(engine, chunk, b"kept")
        assert engine.read_only is None
        await engine.close()
        with (root / "others").open("wb", buffering=0) as others, contextlib.suppress(OSError):
            while True:
                others.write(bytes(4096))
        engine = await ChunkEngine.open(root / "target-1", disk, settings)
        assert engine.read_only is not None, "but for removals"
        assert engine.record(chunk) is not None
        engine.forget(chunk)
        await engine.close()
        await disk.close()

    with small_disk(tmp_path / "disk", "32M") as root:
        run(lambda: main(root))


def test_without_ballast_a_full_disk_is_reported() -> None:
    async def main() -> None:
        async def refuse() -> None:
            raise NoSpace("full")

        for length in (0, 2 * MIB):
            with pytest.raises(NoSpace):
                await Ballast(ROOT / "ballast", new_disk(capacity_bytes=MIB), length).open_with_room(refuse)

    simulate(main())
