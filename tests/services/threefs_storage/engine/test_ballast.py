from pathlib import Path

from threefs_storage.engine.ballast import Ballast

from tests.support.simulated_disk import new_disk, simulate

MIB = 1 << 20
ROOT = Path("/")


def test_it_takes_room_only_where_there_is_plenty_and_gives_it_back() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=10 * MIB)
        other = await disk.open(ROOT / "other")
        await other.allocate(0, 7 * MIB)
        ballast = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert not await ballast.take() and not ballast.held, "less than twice as much is free"
        assert disk.free_bytes() == 3 * MIB
        await other.release(0, MIB)
        assert await ballast.take() and ballast.held
        assert disk.free_bytes() == 2 * MIB
        await ballast.drop()
        assert not ballast.held and disk.free_bytes() == 4 * MIB
        assert await ballast.take()

        again = Ballast(ROOT / "ballast", disk, 2 * MIB)
        assert await again.take(), "after a restart it is still there"
        assert disk.free_bytes() == 2 * MIB
        await again.close()

    simulate(main())


def test_without_a_size_it_needs_no_file() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=0)
        ballast = Ballast(ROOT / "ballast", disk, 0)
        assert ballast.held and await ballast.take()
        await ballast.drop()
        await ballast.close()
        assert not disk.files

    simulate(main())
