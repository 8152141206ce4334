"""What has lost its last name is freed: all of it, only it, and after any interruption."""

import asyncio
import contextlib
import dataclasses
import math
from typing import Any

import pytest
from threefs_meta import garbage_collector
from threefs_meta.garbage_collector import ENTRIES_PER_TRANSACTION, PAGE, GarbageCollector
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench, at, run
from threefs.errors import Corrupt, NotFound
from threefs.layout import from_wire
from threefs.leases import REPLAYS_KEPT_S
from threefs.routing import PublicState
from threefs.wire import meta_pb2 as pb


async def written(fs: MetaBench, path: str) -> pb.Inode:
    made = (await fs.create(path, session=SESSION, parents=True)).inode
    await fs.write(made, 0, b"data")
    return await fs.close(made, SESSION, length_hint=4, written=True)


async def left(fs: MetaBench, *ranges: tuple[bytes, bytes]) -> int:
    return sum([len(await fs.engine.begin().get_range(*keys_of)) for keys_of in ranges])


def test_a_removed_file_loses_its_chunks_and_its_record() -> None:
    async def test(fs: MetaBench) -> None:
        gone, kept = await written(fs, "/gone"), await written(fs, "/kept")
        await fs.remove("/gone")
        assert fs.chunk_numbers(gone) == [0], "not at once"
        await fs.collect_all()
        assert fs.chunk_numbers(gone) == [] and fs.chunk_numbers(kept) == [0]
        assert await left(fs, keys.INODES) == 2 and await left(fs, keys.REMOVALS) == 0

    run(test)


def test_a_file_with_another_name_stays() -> None:
    async def test(fs: MetaBench) -> None:
        file = await written(fs, "/a")
        await fs.link("/a", "/b")
        await fs.remove("/a")
        await fs.collect_all()
        assert fs.chunk_numbers(file) == [0] and (await fs.stat("/b")).nlink == 1
        await fs.remove("/b")
        await fs.collect_all()
        assert fs.chunk_numbers(file) == []

    run(test)


def test_a_file_that_is_open_for_writing_waits() -> None:
    async def test(fs: MetaBench) -> None:
        file = await written(fs, "/a")
        await fs.open("/a", session=SESSION)
        await fs.remove("/a")
        await fs.collect_all()
        await fs.write(file, 4, b"more")
        request = pb.OpenRequest(mutation=fs.mutation(), place=at("", file.inode), session=b"2" * 16)
        with pytest.raises(NotFound):
            await open_inode(fs.context, request)
        source = pb.LinkRequest(mutation=fs.mutation(), source=at("", file.inode), destination=at("/back"))
        with pytest.raises(NotFound):
            await link(fs.context, source)
        closed = await fs.close(file, SESSION, length_hint=8, written=True)
        assert (closed.nlink, closed.length) == (0, 8)
        await fs.collect_all()
        assert fs.chunk_numbers(file) == [] and await left(fs, keys.INODES) == 1

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_tree_goes_in_small_steps(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/t/d/e", parents=True)
        for number in range(ENTRIES_PER_TRANSACTION + 70):
            await fs.create(f"/t/d/{number}")
        files = [await written(fs, f"/t/d/e/{number}") for number in range(3)]
        await fs.symlink("x", "/t/d/link")
        await fs.link("/t/d/e/0", "/outside")
        inside = await fs.stat("/t/d")
        await fs.remove("/t", recursive=True)
        assert await fs.names("/") == ["outside"]
        await fs.pass_lease()
        await fs.collector.collect()
        await fs.audit()
        late = pb.CreateRequest(mutation=fs.mutation(), place=at("late", inside.inode))
        with contextlib.suppress(NotFound):
            await create(fs.context, late)  # somebody still has a handle of a directory inside
        while await fs.collector.collect():
            await fs.audit()
        await fs.collect_all()
        assert await left(fs, keys.INODES) == 2 and await left(fs, keys.REMOVALS, keys.TIMES) == 1
        assert [fs.chunk_numbers(file) for file in files] == [[0], [], []]

    run(test, conflict_rate=0.2, unknown_rate=0.2, seed=seed)


def test_storage_that_is_away_only_delays() -> None:
    async def test(fs: MetaBench) -> None:
        file = await written(fs, "/a")
        await fs.remove("/a")
        await fs.pass_lease()
        fs.storage.down.update(node.address for node in fs.cluster.routing.nodes.values())
        assert await fs.collector.collect() == 0
        fs.storage.down.clear()
        await fs.collect_all()
        assert fs.chunk_numbers(file) == []

    run(test)


def test_nothing_is_freed_any_more_when_it_has_been_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is closed then."""

    async def test(fs: MetaBench) -> None:
        for number in range(4):
            await written(fs, f"/{number}")
            await fs.remove(f"/{number}")
        await fs.pass_lease()
        under_way = 0

        async def slow(*args: object) -> int:
            nonlocal under_way
            under_way += 1
            patience_s = under_way / 1000
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(patience_s)
                raise
            finally:
                under_way -= 1
            return 0

        monkeypatch.setattr(garbage_collector, "remove_chunks", slow)
        work = asyncio.create_task(fs.collector.collect())
        while under_way < 4:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert under_way == 0

    run(test)


def test_another_service_takes_over_and_two_do_no_harm() -> None:
    async def test(fs: MetaBench) -> None:
        files = [await written(fs, f"/d/{number}") for number in range(PAGE + 10)]
        await fs.remove("/d", recursive=True)
        both = [GarbageCollector(fs.context), GarbageCollector(fs.context)]
        for _ in range(2):  # the directory, then the files that were in it
            await fs.pass_lease()
            while any(await asyncio.gather(*(one.collect() for one in both))):
                pass
        assert not any(fs.chunk_numbers(file) for file in files)
        assert await left(fs, keys.INODES) == 1

    run(test)


def test_files_that_wait_do_not_hold_up_the_others() -> None:
    async def test(fs: MetaBench) -> None:
        waiting = [(await fs.create(f"/w{number}", session=SESSION)).inode for number in range(PAGE + 5)]
        file = await written(fs, "/last")
        for number in range(len(waiting)):
            await fs.remove(f"/w{number}")
        await fs.remove("/last")
        await fs.pass_lease()
        for _ in range(4):
            await fs.collector.collect()
        assert fs.chunk_numbers(file) == []

    run(test)


def test_it_runs_by_itself_until_it_is_stopped() -> None:
    async def test(fs: MetaBench) -> None:
        file = await written(fs, "/a")
        fs.collector.start()
        await fs.remove("/a")
        await fs.pass_lease()
        while fs.chunk_numbers(file) or await left(fs, keys.REMOVALS):
            await asyncio.sleep(0)
        await fs.collector.stop()

    run(test)


async def _collect(fs: MetaBench, rounds: int = 12) -> None:
    """However it goes."""
    for _ in range(rounds):
        await fs.pass_ticks(2)
        await fs.collector.collect()


@pytest.mark.parametrize("mended", [False, True])
def test_damaged_entries_of_a_removed_directory_hold_up_nothing(mended: bool) -> None:
    async def test() -> None:
        fs = await MetaBench().start()
        many = [await written(fs, f"/t/{number:03}") for number in range(ENTRIES_PER_TRANSACTION + 10)]
        directory = await fs.stat("/t")
        record = await damage.get(fs, keys.inode(many[0].inode))
        await damage.put(fs, keys.inode(many[0].inode), b"\1broken")
        await damage.put(fs, keys.inode(many[1].inode), None)
        await damage.put(fs, keys.entry(directory.inode, b"002"), b"\1broken")
        other = await written(fs, "/other")
        await fs.remove("/t", recursive=True)
        await fs.remove("/other")
        await _collect(fs)
        assert fs.chunk_numbers(other) == []
        assert [fs.chunk_numbers(file) for file in many] == [[0]] * 3 + [[]] * (len(many) - 3)
        if mended:
            await damage.put(fs, keys.inode(many[0].inode), record)
            await damage.put(fs, keys.entry(directory.inode, b"002"), None)
            await _collect(fs, 24)
            assert fs.chunk_numbers(many[0]) == [] and not await left(fs, keys.REMOVALS)

    asyncio.run(test())


def test_chains_that_nobody_serves_hold_up_no_other_file() -> None:
    """Nobody waits for them, and the files that lie there are looked at ever less often."""

    async def test(fs: MetaBench) -> None:
        one = pb.Layout(stripe=1)
        made = [(await fs.create(f"/{number}", layout=one)).inode for number in range(2 * PAGE)]
        chains = [fs.chunks.chain_of(from_wire(file.layout), 0) for file in made]
        dead = chains[0]
        for file in made:
            await fs.write(file, 0, b"data")
        routing = fs.cluster.routing
        members = tuple(
            dataclasses.replace(member, state=PublicState.LASTSRV) for member in routing.chains[dead].members
        )
        chain = dataclasses.replace(routing.chains[dead], version=2, members=members)
        fs.cluster.routing = dataclasses.replace(routing, version=2, chains={**routing.chains, dead: chain})
        for number in range(len(made)):
            await fs.remove(f"/{number}")
        before, calls = fs.clock.monotonic(), len(fs.storage.calls)
        await fs.pass_lease()
        for _ in range(3):
            await fs.collector.collect()
        assert [fs.chunk_numbers(file) for file in made] == [[0] if one == dead else [] for one in chains]
        assert fs.clock.monotonic() - before < 60 and len(fs.storage.calls) - calls <= 2 * len(made)
        fs.cluster.routing = dataclasses.replace(routing, version=3)
        await _collect(fs)
        assert not any(fs.chunk_numbers(file) for file in made)

    run(test)


def test_one_kind_of_work_that_fails_does_not_stop_the_others() -> None:
    async def test(fs: MetaBench) -> None:
        async def fails() -> int:
            raise Corrupt("a record")

        fs.collector.collect = fails  # type: ignore[method-assign]
        await fs.mkdir("/d")
        fs.collector.start()
        await fs.pass_ticks(math.ceil(REPLAYS_KEPT_S / fs.context.logical_clock.tick_s) + 2)
        deadline = asyncio.get_running_loop().time() + 20
        while await left(fs, keys.REPLAYS):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0)
        await fs.collector.stop()

    run(test)


def test_what_cannot_be_freed_is_tried_ever_less_often() -> None:
    async def test(fs: MetaBench) -> None:
        file = await written(fs, "/a")
        await fs.remove("/a")
        await fs.pass_lease()
        fs.storage.down.update(node.address for node in fs.cluster.routing.nodes.values())
        tries, listing = 0, fs.chunks.listing

        def counted(*what: Any, **how: Any) -> Any:
            nonlocal tries
            tries += 1
            return listing(*what, **how)

        fs.chunks.listing = counted  # type: ignore[method-assign]
        for _ in range(32):
            await fs.pass_ticks(1)
            await fs.collector.collect()
        assert 3 <= tries <= 7
        fs.storage.down.clear()
        await _collect(fs)
        assert fs.chunk_numbers(file) == [] and not fs.collector._backoff_ticks

    run(test)


def test_a_link_count_of_zero_under_a_name_stops_neither_the_collector_nor_a_removal() -> None:
    async def test(fs: MetaBench) -> None:
        damaged = [(await fs.create(path, parents=True)).inode for path in ("/file", "/d/file")]
        kept = (await fs.create("/other/file", parents=True)).inode
        for inode in damaged:
            inode.nlink = 0
            await damage.put_inode(fs, inode)
        with pytest.raises(Corrupt, match="link count is 0"):
            await fs.remove("/file")
        for directory in ("/d", "/other"):
            await fs.remove(directory, recursive=True)
        await fs.collect_all()
        assert await damage.get(fs, keys.inode(kept.inode)) is None, "others are freed"
        for inode in damaged:
            inode.nlink = 1  # as `threefs fsck` would repair it
            await damage.put_inode(fs, inode)
        await fs.remove("/file")
        await fs.collect_all()
        assert await left(fs, keys.INODES) == 1

    run(test)
