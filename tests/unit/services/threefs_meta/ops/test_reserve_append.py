"""Room for appends."""

import asyncio

import pytest
from threefs_meta.ops.reserve_append import reserve
from threefs_meta.ops.sync import sync

from tests.harness.meta_harness import SESSION, MetaBench
from threefs.errors import FileTooLarge, InvalidArgument, SessionLost
from threefs.inflight_ranges import is_in_flight
from threefs.wire import meta_pb2 as pb


async def ask(fs: MetaBench, inode: int, length: int, session: bytes = SESSION) -> int:
    request = pb.ReserveRequest(mutation=fs.mutation(), inode=inode, session=session, length=length)
    return (await reserve(fs.context, request)).offset


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_no_range_is_given_out_twice(bench: MetaBench, seed: int) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    bench.clock.advance(1)
    offsets = await asyncio.gather(*(ask(bench, made.inode, 10) for _ in range(5)))
    assert sorted(offsets) == list(range(0, 50, 10))
    found = await bench.stat("/a")
    assert found == await bench.stat("/a") and not found.length, "nothing is there yet"
    assert (found.change, found.mtime_ns) == (made.change, made.mtime_ns) and len(found.appends) == 5
    await bench.close(found, SESSION, length_hint=50, written=True)
    found = await bench.stat("/a")
    assert found.length == 50 and found.change == made.change + 1 and not found.appends and not found.append_end


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_a_file_gets_as_long_as_wanted_and_never_shorter(bench: MetaBench, seed: int) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    for end, length in ((100, 100), (30, 100), (101, 101)):
        request = pb.ReserveRequest(mutation=bench.mutation(), inode=made.inode, session=SESSION, end=end)
        first = await reserve(bench.context, request)
        assert (await reserve(bench.context, request)) == first, "sent again, the answer is the same"
        assert first.inode.length == (await bench.stat("/a")).length == length
    for wrong in (pb.ReserveRequest(length=1, end=1), pb.ReserveRequest(end=1 << 63)):
        wrong.mutation.CopyFrom(bench.mutation())
        wrong.inode, wrong.session = made.inode, SESSION
        with pytest.raises((InvalidArgument, FileTooLarge)):
            await reserve(bench.context, wrong)


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    for length, session, error in (
        (0, SESSION, InvalidArgument),
        (1, b"x" * 16, SessionLost),
        (1, b"", SessionLost),
        (1 << 63, SESSION, FileTooLarge),
    ):
        with pytest.raises(error):
            await ask(bench, made.inode, length, session)
    with pytest.raises(SessionLost):
        await ask(bench, 99, 1)


OTHER = b"o" * 16


async def synced(fs: MetaBench, inode: int, session: bytes, end: int) -> pb.Inode:
    request = pb.SyncRequest(
        mutation=fs.mutation(), inode=inode, session=session, length_hint=end, appends_end=end, written=True
    )
    return (await sync(fs.context, request)).inode


async def test_what_others_append_behind_shows_that_the_bytes_before_are_still_to_come(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.open("/a", session=OTHER)
    assert [await ask(bench, made.inode, 10), await ask(bench, made.inode, 5, OTHER)] == [0, 10]
    seen = await synced(bench, made.inode, OTHER, 15)
    assert seen.length == 15
    assert is_in_flight(seen, 0, 4) and is_in_flight(seen, 9, 15) and not is_in_flight(seen, 10, 15)
    assert not is_in_flight(seen, 0, 10, SESSION), "it knows itself what it has appended"
    assert await ask(bench, made.inode, 1, OTHER) == 15
    seen = await synced(bench, made.inode, SESSION, 10)
    assert not is_in_flight(seen, 0, 15) and is_in_flight(seen, 15, 16)
    await bench.close(seen, OTHER)
    assert not is_in_flight(await bench.stat("/a"), 0, 100), "it will never come"
    assert await ask(bench, made.inode, 1) == 16, "unless it comes very late"


async def test_what_a_dead_client_was_appending_is_waited_for_as_long_as_its_session(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    assert await ask(bench, made.inode, 10) == 0
    await bench.pass_lease()
    assert is_in_flight(await bench.stat("/a"), 0, 10)
    await bench.lease_reaper.reap()
    assert not is_in_flight(await bench.stat("/a"), 0, 10)


async def test_appends_go_behind_the_new_end_of_a_file_that_was_cut(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    assert [await ask(bench, made.inode, 10) for _ in range(2)] == [0, 10]
    await synced(bench, made.inode, SESSION, 10)
    await bench.truncate("/a", 30)
    assert await ask(bench, made.inode, 10) == 30
    cut = await bench.truncate("/a", 25)
    assert [(one.offset, one.end) for one in cut.appends] == [(10, 20)]
    assert await ask(bench, made.inode, 10) == 25
    assert not (await bench.truncate("/a", 25)).append_end, "nobody has seen it, and it comes before"
    assert await ask(bench, made.inode, 10) == 25
    assert not (await bench.truncate("/a", 0)).appends
    assert await ask(bench, made.inode, 10) == 0


async def test_a_report_of_before_a_truncate_ends_no_later_append(bench: MetaBench) -> None:
    """Its writer has appended further than the file is long now. Readers of the later append saw zeros."""
    made = (await bench.create("/a", session=SESSION)).inode

    async def report(version: int, end: int) -> list[tuple[int, int]]:
        request = pb.SyncRequest(
            mutation=bench.mutation(), inode=made.inode, session=SESSION, appends_version=version, appends_end=end
        )
        return [(one.truncate_version, one.end) for one in (await sync(bench.context, request)).inode.appends]

    assert await ask(bench, made.inode, 100) == 0
    await bench.truncate("/a", 0)
    assert await ask(bench, made.inode, 10) == 0
    assert await report(0, 100) == [(1, 10)]
    await bench.truncate("/a", 30)
    assert await report(0, 100) == [(1, 10)]
    assert await ask(bench, made.inode, 10) == 30
    assert await report(1, 10) == [(2, 40)]
    assert await report(2, 40) == []


async def test_few_of_them_are_remembered(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    for _ in range(70):
        await ask(bench, made.inode, 10)
    found = await bench.stat("/a")
    assert len(found.appends) == 64 and found.appends[0].offset == 60 and found.append_end == 700
