"""The faults of simulated record tables: each loses exactly what it may lose."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.loop import Process, SimLoop
from tests.harness.simulated.record_table import SimTable, open_table
from threefs.errors import Corrupt, NoSpace, Unavailable

PATH = Path("/target/records")

Body = Callable[[SimDisk], Coroutine[Any, Any, None]]


def with_disk(body: Body, seed: int = 1, *, capacity_bytes: int = 1 << 30) -> None:
    loop = SimLoop()
    loop.run(body(SimDisk(loop, SeededRandom(seed), capacity_bytes=capacity_bytes)))
    assert not loop.failures
    loop.discard()


def numbers(table: SimTable) -> list[int]:
    return [int(key) for key, _ in table.scan(b"0", b"a")]


def test_rows_are_in_order() -> None:
    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        for key in (b"d", b"a", b"c", b"b", b"e"):
            table.write({key: key.upper()})
        table.write({b"c": None, b"x": None, b"d": b"again"})
        everything = [(b"a", b"A"), (b"b", b"B"), (b"d", b"again"), (b"e", b"E")]
        assert table.scan(b"", b"z") == everything
        assert table.scan(b"", b"z", reverse=True) == everything[::-1]
        assert table.scan(b"b", b"e", 1) == everything[1:2]
        assert table.scan(b"b", b"e", 1, reverse=True) == everything[2:3]
        assert table.scan(b"b", b"e", 9, reverse=True) == everything[2:0:-1]
        assert (table.get(b"c"), table.get(b"d")) == (None, b"again")
        assert disk.tables[PATH].size_bytes == sum(len(key) + len(value) for key, value in everything)

    with_disk(body)


def test_a_power_cut_leaves_a_beginning_that_has_all_that_was_flushed() -> None:
    kept = set()

    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        for number in range(9):
            assert table.write({b"%d" % number: b"x"}) == number + 1
            if number == 3:
                await table.flush()
                assert table.durable == 4
        disk.cut_power()
        found = numbers(await open_table(disk, PATH))
        assert found == list(range(len(found)))
        kept.add(len(found))

    for seed in range(60):
        with_disk(body, seed)
    assert kept == {4, 5, 6, 7, 8, 9}


def test_a_power_cut_undoes_overwrites_and_removals() -> None:
    found = set()

    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        table.write({b"1": b"old", b"2": b"old"})
        await table.flush()
        table.write({b"1": b"new", b"2": None, b"3": b"new"})
        disk.cut_power()
        found.add(tuple((await open_table(disk, PATH)).scan(b"", b"z")))

    for seed in range(20):
        with_disk(body, seed)
    assert found == {((b"1", b"old"), (b"2", b"old")), ((b"1", b"new"), (b"3", b"new"))}, "a write is one step"


def test_a_flush_covers_what_was_written_before_it() -> None:
    kept = set()

    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        first = table.write({b"0": b"x"})
        disk.loop.call_later(0, lambda: table.write({b"1": b"x"}))
        await table.flush(first)
        assert (table.durable, table.written) == (1, 2)
        disk.cut_power()
        kept.add(len(numbers(await open_table(disk, PATH))))

    for seed in range(20):
        with_disk(body, seed)
    assert kept == {1, 2}


def test_a_killed_process_loses_nothing_that_it_wrote() -> None:
    async def body(disk: SimDisk) -> None:
        process = Process(disk.loop, "p", "host")

        async def write() -> None:
            table = await open_table(disk, PATH)
            for number in range(5):
                table.write({b"%d" % number: b"x"})
            disk.loop.call_soon(process.kill)
            await table.flush()
            raise AssertionError("it is dead")

        process.start(write())
        await asyncio.sleep(1)
        assert not process.alive
        table = await open_table(disk, PATH)
        assert numbers(table) == [0, 1, 2, 3, 4]
        disk.cut_power()
        assert numbers(await open_table(disk, PATH)) == [0, 1, 2, 3, 4], "the next opening has made it durable"

    for seed in range(10):
        with_disk(body, seed)


def test_after_a_failed_sync_it_refuses_everything_and_has_lost_some() -> None:
    kept = set()

    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        table.write({b"0": b"x"})
        await table.flush()
        table.write({b"1": b"x"})
        table.write({b"2": b"x"})
        disk.failing_once.add("sync")
        for attempt in (table.flush(), table.flush()):
            with pytest.raises(Unavailable):
                await attempt
        for refused in (lambda: table.write({b"3": b"x"}), lambda: table.get(b"0"), lambda: table.scan(b"", b"z")):
            with pytest.raises(Unavailable):
                refused()
        await table.close()
        kept.add(len(numbers(await open_table(disk, PATH))))

    for seed in range(40):
        with_disk(body, seed)
    assert kept == {1, 2, 3}


def test_a_failed_write_changes_nothing_and_ends_its_use() -> None:
    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        table.write({b"0": b"x"})
        disk.failing.add("write")
        with pytest.raises(Unavailable):
            table.write({b"1": b"x"})
        disk.failing.clear()
        with pytest.raises(Unavailable):
            table.get(b"0")
        assert numbers(await open_table(disk, PATH)) == [0]

    with_disk(body)


def test_a_disk_that_cannot_be_read_opens_no_table() -> None:
    async def body(disk: SimDisk) -> None:
        disk.failing_once.add("read")
        with pytest.raises(Unavailable):
            await open_table(disk, PATH)
        await open_table(disk, PATH)

    with_disk(body)


def test_a_full_disk_refuses_writes_until_there_is_room_and_it_is_opened_again() -> None:
    async def body(disk: SimDisk) -> None:
        table = await open_table(disk, PATH)
        table.write({b"0": b"x" * 900_000})
        with pytest.raises(NoSpace):
            table.write({b"1": b"x" * 200_000})
        with pytest.raises(NoSpace):
            table.write({b"1": b""})
        assert numbers(table) == [0], "reads go on"
        disk.capacity_bytes -= disk.free_bytes()
        with pytest.raises(NoSpace):
            await table.reopen()
        disk.capacity_bytes = 2_000_000
        await table.reopen()
        disk.cut_power()
        table.write({b"1": b"x" * 200_000})
        assert numbers(table) == [0, 1]

    with_disk(body, capacity_bytes=1_000_000)


@pytest.mark.parametrize("seed", range(20))
def test_the_flush_finds_that_the_disk_is_full(seed: int) -> None:
    """And some of the changes since the last flush may be lost then: the table is not opened again."""

    async def body(disk: SimDisk) -> None:
        disk.full_found_late = 1.0
        table = await open_table(disk, PATH)
        table.write({b"0": b"x"})
        await table.flush()
        table.write({b"1": b"x" * 1_200_000})
        with pytest.raises(NoSpace):
            await table.flush()
        assert numbers(table) == [0, 1], "reads go on"
        disk.capacity_bytes = 4_000_000
        try:
            await table.reopen()
            assert numbers(table) == [0, 1]
        except Corrupt:
            assert numbers(await open_table(disk, PATH)) in ([0], [0, 1])

    with_disk(body, seed=seed, capacity_bytes=1_000_000)


def test_an_older_opening_may_not_write() -> None:
    async def body(disk: SimDisk) -> None:
        old = await open_table(disk, PATH)
        await open_table(disk, PATH)
        with pytest.raises(AssertionError, match="two processes"):
            old.write({b"0": b"x"})

    with_disk(body)
