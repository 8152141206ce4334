"""What readers are told of a file that is being cut."""

import asyncio

import pytest
from threefs_meta.store import keys

from tests.harness.meta_harness import MetaBench, run
from tests.unit.services.threefs_meta.file.test_length import CHUNK, before_each_removal, content, made, report
from threefs.wire import meta_pb2 as pb


def test_readers_are_told_while_bytes_go_that_they_can_see() -> None:
    async def test(fs: MetaBench) -> None:
        inode = await made(fs)
        for number in range(3):
            await fs.write(inode, number * CHUNK, b"x" * CHUNK)
        inode = await report(fs, inode, 3 * CHUNK)
        seen: list[tuple[int, int, int]] = []

        async def look_at() -> None:
            found = await fs.stat("/f")
            seen.append((found.length, found.cutting, found.change))

        before_each_removal(fs, look_at)
        after = await fs.truncate("/f", CHUNK + 5)
        assert seen and set(seen) == {(3 * CHUNK, CHUNK + 6, inode.change)}
        assert not after.cutting and after.change == inode.change + 1
        assert not await fs.engine.begin().get_range(*keys.TRUNCATION_MARKS)

    run(test)


def test_of_bytes_that_nobody_could_see_nobody_is_told() -> None:
    async def test(fs: MetaBench) -> None:
        inode = await made(fs)
        await fs.write(inode, 0, b"x" * 1000)
        seen: list[int] = []

        async def look_at() -> None:
            seen.append((await fs.stat("/f")).cutting)

        before_each_removal(fs, look_at)
        await fs.truncate("/f", 10)
        await fs.truncate("/f", 10_000)
        assert seen and set(seen) == {0}

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_two_who_cut_a_file_leave_no_mark(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        inode = await made(fs)
        for number in range(3):
            await fs.write(inode, number * CHUNK, b"x" * CHUNK)
        await report(fs, inode, 3 * CHUNK)
        await asyncio.gather(*(fs.truncate("/f", length) for length in (0, CHUNK, 0, 10)), return_exceptions=True)
        found = await fs.stat("/f")
        assert not found.cutting and not await fs.engine.begin().get_range(*keys.TRUNCATION_MARKS)
        assert content(fs, found, found.length) == b"x" * found.length if found.length != 10 else True

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


def test_nobody_waits_for_a_service_that_died_over_a_cut() -> None:
    async def test(fs: MetaBench) -> None:
        inode = await made(fs)
        await fs.write(inode, 0, b"x" * 1000)
        inode = await report(fs, inode, 1000)
        task: asyncio.Task[pb.Inode]

        async def dies() -> None:
            task.cancel()

        before_each_removal(fs, dies)
        task = asyncio.ensure_future(fs.truncate("/f", 10))
        await asyncio.gather(task, return_exceptions=True)
        assert (await fs.stat("/f")).cutting == 11
        await fs.pass_ticks(1)
        await fs.lease_reaper.reap()
        assert (await fs.stat("/f")).cutting == 11, "it may be at work"
        await fs.pass_ticks(3)
        await fs.lease_reaper.reap()
        after = await fs.stat("/f")
        assert (after.length, after.cutting, after.change) == (1000, 0, inode.change + 1)
        assert not await fs.engine.begin().get_range(*keys.TRUNCATION_MARKS)
        assert (await fs.truncate("/f", 10)).length == 10

    run(test)


def test_a_cut_whose_mark_was_taken_away_sets_another_one() -> None:
    """It took longer than anybody reckoned with."""

    async def test(fs: MetaBench) -> None:
        inode = await made(fs)
        for number in range(3):
            await fs.write(inode, number * CHUNK, b"x" * CHUNK)
        await report(fs, inode, 3 * CHUNK)
        rounds: list[int] = []

        async def passes() -> None:
            rounds.append((await fs.stat("/f")).cutting)
            if len(rounds) == 1:
                await fs.pass_ticks(4)
                await fs.lease_reaper.reap()

        before_each_removal(fs, passes)
        after = await fs.truncate("/f", 0)
        assert set(rounds) == {1} and not after.cutting and content(fs, inode, 1) == b"\0"

    run(test)
