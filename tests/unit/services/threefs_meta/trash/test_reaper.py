"""The end of the time in the trash."""

import pytest
from threefs_meta.store import keys
from threefs_meta.trash.reaper import PAGE, TrashReaper

from tests.harness import damage
from tests.harness.meta_harness import MetaBench, run
from threefs.errors import NotFound


async def expire_all(fs: MetaBench) -> int:
    expiry, count = TrashReaper(fs.context), 0
    while done := await expiry.expire():
        assert done <= PAGE
        count += done
    return count


@pytest.mark.parametrize("seed", range(3))
def test_what_is_due_goes_and_nothing_else(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        tick_s = int(fs.context.logical_clock.tick_s) + 1
        await fs.mkdir("/long")
        await fs.set_trash("/", 3 * tick_s)
        await fs.set_trash("/long", 100 * tick_s)
        files = [(await fs.create(f"/{number}")).inode for number in range(PAGE + 5)]
        late = (await fs.create("/long/a")).inode
        await fs.mkdir("/d/e", parents=True)
        inner = (await fs.create("/d/e/f")).inode
        for file in (*files, late, inner):
            await fs.write(file, 0, b"abc")
        for number in range(len(files)):
            await fs.remove(f"/{number}")
        await fs.remove("/long/a")
        await fs.remove("/d", recursive=True)
        await fs.pass_ticks(1)
        assert await expire_all(fs) == 0
        await fs.pass_ticks(8)
        assert await expire_all(fs) >= len(files) + 1
        await fs.collect_all()
        assert [item.path for item in await fs.trash()] == [b"/long/a"]
        assert not any(fs.chunk_numbers(file) for file in (*files, inner))
        assert fs.chunk_numbers(late) == [0]
        assert len(await fs.engine.begin().get_range(*keys.TRASH)) == 1

    run(test, conflict_rate=0.05, unknown_rate=0.05, seed=seed)


def test_what_was_taken_out_of_the_trash_is_left_alone() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", 1)
        for name in ("back", "other"):
            await fs.create(f"/{name}")
            await fs.remove(f"/{name}")
        back, other = await fs.trash()
        await fs.rename(f"/.trash/0/{back.name.decode()}", "/back")
        await fs.rename(f"/.trash/0/{other.name.decode()}", "/.trash/0/mine")
        await fs.create(f"/.trash/0/{other.name.decode()}")
        await fs.pass_ticks(20)
        assert await expire_all(fs) == 2
        assert await fs.stat("/back") and await fs.stat("/.trash/0/mine")
        assert await fs.stat(f"/.trash/0/{other.name.decode()}"), "another one under the same name"
        assert await fs.engine.begin().get_range(*keys.TRASH) == []

    run(test)


def test_a_record_that_cannot_be_read_holds_up_nobody() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", 1)
        for name in ("a", "b"):
            await fs.create(f"/{name}")
            await fs.remove(f"/{name}")
        (key, value), _ = await fs.engine.begin().get_range(*keys.TRASH)
        await damage.put(fs, key, value[:-1])
        await fs.pass_ticks(20)
        assert await TrashReaper(fs.context).expire() == 1
        await damage.put(fs, key, value)
        assert await TrashReaper(fs.context).expire() == 1
        with pytest.raises(NotFound):
            await fs.stat("/a")

    run(test)
