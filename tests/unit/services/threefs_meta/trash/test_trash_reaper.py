"""The end of the time in the trash."""

import pytest
from threefs_meta.store import keys
from threefs_meta.trash.trash_reaper import PAGE, TrashReaper

from tests.harness import damage
from tests.harness.meta_harness import MetaBench
from threefs.errors import NotFound


async def expire_all(fs: MetaBench) -> int:
    expiry, count = TrashReaper(fs.context), 0
    while done := await expiry.expire():
        assert done <= PAGE
        count += done
    return count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.05, unknown_rate=0.05)
async def test_what_is_due_goes_and_nothing_else(bench: MetaBench, seed: int) -> None:
    tick_s = int(bench.context.logical_clock.tick_s) + 1
    await bench.mkdir("/long")
    await bench.set_trash("/", 3 * tick_s)
    await bench.set_trash("/long", 100 * tick_s)
    files = [(await bench.create(f"/{number}")).inode for number in range(PAGE + 5)]
    late = (await bench.create("/long/a")).inode
    await bench.mkdir("/d/e", parents=True)
    inner = (await bench.create("/d/e/f")).inode
    for file in (*files, late, inner):
        await bench.write(file, 0, b"abc")
    for number in range(len(files)):
        await bench.remove(f"/{number}")
    await bench.remove("/long/a")
    await bench.remove("/d", recursive=True)
    await bench.pass_ticks(1)
    assert await expire_all(bench) == 0
    await bench.pass_ticks(8)
    assert await expire_all(bench) >= len(files) + 1
    await bench.collect_all()
    assert [item.path for item in await bench.trash()] == [b"/long/a"]
    assert not any(bench.chunk_numbers(file) for file in (*files, inner))
    assert bench.chunk_numbers(late) == [0]
    assert len(await bench.engine.begin().get_range(*keys.TRASH)) == 1


async def test_what_was_taken_out_of_the_trash_is_left_alone(bench: MetaBench) -> None:
    await bench.set_trash("/", 1)
    for name in ("back", "other"):
        await bench.create(f"/{name}")
        await bench.remove(f"/{name}")
    back, other = await bench.trash()
    await bench.rename(f"/.trash/0/{back.name.decode()}", "/back")
    await bench.rename(f"/.trash/0/{other.name.decode()}", "/.trash/0/mine")
    await bench.create(f"/.trash/0/{other.name.decode()}")
    await bench.pass_ticks(20)
    assert await expire_all(bench) == 2
    assert await bench.stat("/back") and await bench.stat("/.trash/0/mine")
    assert await bench.stat(f"/.trash/0/{other.name.decode()}"), "another one under the same name"
    assert await bench.engine.begin().get_range(*keys.TRASH) == []


async def test_a_record_that_cannot_be_read_does_not_delay_the_others(bench: MetaBench) -> None:
    await bench.set_trash("/", 1)
    for name in ("a", "b"):
        await bench.create(f"/{name}")
        await bench.remove(f"/{name}")
    (key, value), _ = await bench.engine.begin().get_range(*keys.TRASH)
    await damage.put(bench, key, value[:-1])
    await bench.pass_ticks(20)
    assert await TrashReaper(bench.context).expire() == 1
    await damage.put(bench, key, value)
    assert await TrashReaper(bench.context).expire() == 1
    with pytest.raises(NotFound):
        await bench.stat("/a")
