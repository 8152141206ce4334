"""What readers see of a file that is being truncated."""

import asyncio
import dataclasses

import pytest
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.ops import reserve_append
from threefs_meta.store import keys

from tests.harness.meta_harness import SESSION, MetaBench
from tests.unit.services.threefs_meta.file.test_length import (
    CHUNK,
    SMALL,
    before_each_removal,
    content,
    made,
    once_swept,
    report,
)
from threefs.errors import QuotaExceeded, StaleFence
from threefs.wire import meta_pb2 as pb


async def test_readers_learn_of_a_truncate_of_bytes_that_they_can_see(bench: MetaBench) -> None:
    inode = await made(bench)
    for number in range(3):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    inode = await report(bench, inode, 3 * CHUNK)
    seen: list[tuple[int, int, int]] = []

    async def look_at() -> None:
        found = await bench.stat("/f")
        seen.append((found.length, found.cutting, found.change))

    before_each_removal(bench, look_at)
    after = await bench.truncate("/f", CHUNK + 5)
    assert seen and set(seen) == {(3 * CHUNK, CHUNK + 6, inode.change)}
    assert not after.cutting and after.change == inode.change + 1
    assert not await bench.engine.begin().get_range(*keys.TRUNCATION_MARKS)


async def test_readers_do_not_learn_of_a_truncate_of_bytes_that_were_not_visible(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    seen: list[int] = []

    async def look_at() -> None:
        seen.append((await bench.stat("/f")).cutting)

    before_each_removal(bench, look_at)
    await bench.truncate("/f", 10)
    await bench.truncate("/f", 10_000)
    assert seen and set(seen) == {0}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_two_truncates_of_a_file_leave_no_mark(bench: MetaBench, seed: int) -> None:
    inode = await made(bench)
    for number in range(3):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    await report(bench, inode, 3 * CHUNK)
    await asyncio.gather(*(bench.truncate("/f", length) for length in (0, CHUNK, 0, 10)), return_exceptions=True)
    found = await bench.stat("/f")
    assert not found.cutting and not await bench.engine.begin().get_range(*keys.TRUNCATION_MARKS)
    lengths = (length for length in (0, 10, CHUNK) if length <= found.length)  # a shorter one may have come before
    assert content(bench, found, found.length) in [(b"x" * kept).ljust(found.length, b"\0") for kept in lengths]


async def test_an_append_whose_place_is_cut_off_does_not_arrive_afterwards(bench: MetaBench) -> None:
    """Its place was given to the next append, whose bytes it overwrote; or there were zeros before it."""
    inode = await made(bench)
    session = b"w" * 16
    await bench.open("/f", session=session)
    await bench.write(inode, 0, b"x" * 1000, fence=1)
    inode = await report(bench, inode, 1000)
    seen: list[int] = []

    async def reserve() -> int:
        request = pb.ReserveRequest(mutation=bench.mutation(), inode=inode.inode, session=session, length=100)
        return (await reserve_append.reserve(bench.context, request)).offset

    async def another_one() -> None:
        if not seen:
            seen.append(await reserve())

    assert await reserve() == 1000
    before_each_removal(bench, another_one)  # whose place is cut off as well
    cut = await bench.truncate("/f", 10)
    assert cut.fence >= 2 and not cut.cutting and not cut.appends and seen == [1100]
    for offset in (1000, 1100):
        with pytest.raises(StaleFence):
            await bench.write(inode, offset, b"late", fence=1)
    assert await reserve() == 10
    await bench.write(inode, 10, b"next", fence=cut.fence + 1)
    inode = await report(bench, cut, 14)
    assert content(bench, inode, 14) == b"x" * 10 + b"next"


async def test_an_append_before_the_new_end_keeps_its_place(bench: MetaBench) -> None:
    inode = await made(bench)
    session = b"w" * 16
    await bench.open("/f", session=session)
    request = pb.ReserveRequest(mutation=bench.mutation(), inode=inode.inode, session=session, length=100)
    assert (await reserve_append.reserve(bench.context, request)).offset == 0
    cut = await bench.truncate("/f", 100)
    assert not cut.fence and len(cut.appends) == 1
    await bench.write(inode, 0, b"late", fence=1)


async def test_no_reader_waits_for_a_service_that_died_during_a_truncate(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    inode = await report(bench, inode, 1000)
    task: asyncio.Task[pb.Inode]

    async def dies() -> None:
        task.cancel()

    before_each_removal(bench, dies)
    task = asyncio.ensure_future(bench.truncate("/f", 10))
    await asyncio.gather(task, return_exceptions=True)
    assert (await bench.stat("/f")).cutting == 11
    await bench.pass_ticks(1)
    await bench.lease_reaper.reap()
    assert (await bench.stat("/f")).cutting == 11, "it may be at work"
    await bench.pass_ticks(3)
    await bench.lease_reaper.reap()
    after = await bench.stat("/f")
    assert (after.length, after.cutting, after.change) == (1000, 0, inode.change + 1)
    assert not await bench.engine.begin().get_range(*keys.TRUNCATION_MARKS)
    assert (await bench.truncate("/f", 10)).length == 10


async def test_a_cut_whose_mark_was_taken_away_sets_another_one(bench: MetaBench) -> None:
    """It took longer than anybody reckoned with."""
    inode = await made(bench)
    for number in range(3):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    await report(bench, inode, 3 * CHUNK)
    rounds: list[int] = []

    async def passes() -> None:
        rounds.append((await bench.stat("/f")).cutting)
        if len(rounds) == 1:
            await bench.pass_ticks(4)
            await bench.lease_reaper.reap()

    before_each_removal(bench, passes)
    after = await bench.truncate("/f", 0)
    assert set(rounds) == {1} and not after.cutting and content(bench, inode, 1) == b"\0"


async def restored_with_older_record(bench: MetaBench) -> pb.Inode:
    """/f has bytes on a second chain of which the record in the backup does not know."""
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 10)
    inode = await bench.close(inode, SESSION, length_hint=10, written=True)
    key = keys.inode(inode.inode)
    record = await bench.engine.begin().get(key)
    assert record is not None and inode.chains_used == 1
    await bench.open("/f", session=SESSION)
    await bench.write(inode, CHUNK, b"y" * 10)
    assert (await bench.close(inode, SESSION, length_hint=CHUNK + 10, written=True)).chains_used == 2
    tx = bench.engine.begin()
    tx.set(key, record)
    await tx.commit()
    bench.context = dataclasses.replace(bench.context, first_inode=lambda: inode.inode + 1)
    return inode


async def test_no_byte_that_a_restore_has_forgotten_outlives_a_truncate(bench: MetaBench) -> None:
    inode = await restored_with_older_record(bench)
    await bench.truncate("/f", 0)
    assert not bench.chunk_numbers(inode)
    longer = await bench.truncate("/f", CHUNK + 10)
    assert content(bench, longer, CHUNK + 10) == bytes(CHUNK + 10)


async def test_no_chunk_that_a_restore_has_forgotten_outlives_its_file(bench: MetaBench) -> None:
    inode = await restored_with_older_record(bench)
    bench.collector = GarbageCollector(bench.context)
    await bench.remove("/f")
    await bench.collect_all()
    assert not bench.chunk_numbers(inode)


async def made_under_quota(bench: MetaBench) -> pb.Inode:
    """A file whose writer has written two chunks, and has not reported them yet. It may have 100 bytes."""
    await bench.mkdir("/t")
    await bench.set_quota("/t", limit_bytes=100)
    await bench.count_all()
    inode = (await bench.create("/t/f", session=SESSION, layout=SMALL)).inode
    for number in range(2):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    return inode


async def test_a_truncate_that_a_quota_refuses_destroys_nothing(bench: MetaBench) -> None:
    """It removed what a writer had written beyond the new end and not reported yet."""
    inode = await made_under_quota(bench)
    with pytest.raises(QuotaExceeded):
        await bench.truncate("/t/f", CHUNK)
    assert content(bench, inode, 2 * CHUNK) == b"x" * 2 * CHUNK


async def test_a_truncate_that_has_removed_bytes_is_not_refused_any_more(bench: MetaBench) -> None:
    inode = await made_under_quota(bench)

    async def others_use_it_up() -> None:
        await bench.set_quota("/t", limit_bytes=1)
        await bench.count_all()

    once_swept(bench, others_use_it_up)
    assert (await bench.truncate("/t/f", 50)).length == 50
    assert content(bench, inode, 2 * CHUNK) == b"x" * 50 + b"\0" * (2 * CHUNK - 50)


async def test_a_truncate_that_has_changed_nothing_is_refused_if_it_has_become_an_extension(bench: MetaBench) -> None:
    """Another client cut the file in between: the whole length was more than the quota allows."""
    await bench.mkdir("/t")
    await bench.create("/t/f")
    await bench.truncate("/t/f", 90)

    async def others_cut_it() -> None:
        await bench.truncate("/t/f", 0)
        await bench.set_quota("/t", limit_bytes=50)
        await bench.count_all()

    once_swept(bench, others_cut_it)
    with pytest.raises(QuotaExceeded):
        await bench.truncate("/t/f", 90)
    assert (await bench.stat("/t/f")).length == 0
