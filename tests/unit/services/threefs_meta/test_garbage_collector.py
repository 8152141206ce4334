"""What has lost its last name is freed: all of it, only it, and after any interruption."""

import asyncio
import contextlib
import dataclasses
import math
from typing import Any

import pytest
from threefs_meta import garbage_collector
from threefs_meta.garbage_collector import ENTRIES_PER_TRANSACTION, PAGE, GarbageCollector
from threefs_meta.locks.fencing import end_writes
from threefs_meta.ops.create import create
from threefs_meta.ops.link import link
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import Corrupt, NotFound, TooFewReplicas
from threefs.ids import ROOT, ChainId
from threefs.layout import from_wire
from threefs.leases import REPLAYS_KEPT_S
from threefs.routing import PublicState, Routing
from threefs.wire import meta_pb2 as pb


async def written(fs: MetaBench, path: str) -> pb.Inode:
    made = (await fs.create(path, session=SESSION, parents=True)).inode
    await fs.write(made, 0, b"data")
    return await fs.close(made, SESSION, length_hint=4, written=True)


def served_by_nobody(routing: Routing, dead: ChainId) -> Routing:
    members = tuple(dataclasses.replace(member, state=PublicState.LASTSRV) for member in routing.chains[dead].members)
    chain = dataclasses.replace(routing.chains[dead], version=2, members=members)
    return dataclasses.replace(routing, version=2, chains={**routing.chains, dead: chain})


async def left(fs: MetaBench, *ranges: tuple[bytes, bytes]) -> int:
    return sum([len(await fs.engine.begin().get_range(*keys_of)) for keys_of in ranges])


async def test_a_removed_file_loses_its_chunks_and_its_record(bench: MetaBench) -> None:
    gone, kept = await written(bench, "/gone"), await written(bench, "/kept")
    await bench.remove("/gone")
    assert bench.chunk_numbers(gone) == [0], "not at once"
    await bench.collect_all()
    assert bench.chunk_numbers(gone) == [] and bench.chunk_numbers(kept) == [0]
    assert await left(bench, keys.INODES) == 2 and await left(bench, keys.REMOVALS) == 0


async def test_a_file_with_another_name_stays(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    await bench.link("/a", "/b")
    await bench.remove("/a")
    await bench.collect_all()
    assert bench.chunk_numbers(file) == [0] and (await bench.stat("/b")).nlink == 1
    await bench.remove("/b")
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


async def test_a_file_that_is_open_for_writing_waits(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    await bench.open("/a", session=SESSION)
    await bench.remove("/a")
    await bench.collect_all()
    await bench.write(file, 4, b"more")
    request = pb.OpenRequest(mutation=bench.mutation(), place=at("", file.inode), session=b"2" * 16)
    with pytest.raises(NotFound):
        await open_inode(bench.context, request)
    source = pb.LinkRequest(mutation=bench.mutation(), source=at("", file.inode), destination=at("/back"))
    with pytest.raises(NotFound):
        await link(bench.context, source)
    closed = await bench.close(file, SESSION, length_hint=8, written=True)
    assert (closed.nlink, closed.length) == (0, 8)
    await bench.collect_all()
    assert bench.chunk_numbers(file) == [] and await left(bench, keys.INODES) == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.2)
async def test_a_large_tree_goes_in_small_steps(bench: MetaBench, seed: int) -> None:
    await bench.mkdir("/t/d/e", parents=True)
    for number in range(ENTRIES_PER_TRANSACTION + 70):
        await bench.create(f"/t/d/{number}")
    files = [await written(bench, f"/t/d/e/{number}") for number in range(3)]
    await bench.symlink("x", "/t/d/link")
    await bench.link("/t/d/e/0", "/outside")
    inside = await bench.stat("/t/d")
    await bench.remove("/t", recursive=True)
    assert await bench.names("/") == ["outside"]
    await bench.pass_lease()
    await bench.collector.collect()
    await bench.audit()
    late = pb.CreateRequest(mutation=bench.mutation(), place=at("late", inside.inode))
    with contextlib.suppress(NotFound):
        await create(bench.context, late)  # somebody still has a handle of a directory inside
    while await bench.collector.collect():
        await bench.audit()
    await bench.collect_all()
    assert await left(bench, keys.INODES) == 2 and await left(bench, keys.REMOVALS, keys.TIMES) == 1
    assert [bench.chunk_numbers(file) for file in files] == [[0], [], []]


@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.2)
async def test_each_step_goes_on_behind_the_entries_that_are_removed(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To come by the places of 200,000 of them took a tenth of a second, in each of 1,600 steps."""
    directory = await bench.mkdir("/d")
    for number in range(3 * ENTRIES_PER_TRANSACTION + 5):
        await bench.create(f"/d/{number:04d}")
    await bench.remove("/d", recursive=True)
    entries, begins = keys.entries, set()

    def noted(parent: int, after: bytes = b"") -> tuple[bytes, bytes]:
        begins.add((parent, after))
        return entries(parent, after)

    monkeypatch.setattr(keys, "entries", noted)
    await bench.collector.collect()
    kept = (await bench.create("/kept")).inode
    kept.nlink = 2
    await damage.put_inode(bench, kept)
    await damage.put_entry(bench, directory.inode, b"0000", kept.inode, pb.FILE)  # as while it had a name again
    await bench.collect_all()
    assert await left(bench, keys.INODES) == 2 and (await bench.stat("/kept")).nlink == 1
    ends = [b"%04d" % (step * ENTRIES_PER_TRANSACTION - 1) for step in (1, 2, 3)]
    assert begins == {(directory.inode, name) for name in [b"", *ends]}


async def test_directories_that_another_service_has_drained_to_their_end_are_forgotten(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several services, each remembered them for ever."""
    monkeypatch.setattr(garbage_collector, "ENTRIES_PER_TRANSACTION", 2)
    monkeypatch.setattr(garbage_collector, "_MAX_DRAINED", 3)
    collector = GarbageCollector(bench.context)
    for number in range(15):
        await bench.create(f"/{number % 5}/{number}", parents=True)
    for number in range(5):
        await bench.remove(f"/{number}", recursive=True)
    await bench.pass_lease()
    assert await collector.collect() == 10, "a step in each directory"
    await bench.collect_all()
    assert await left(bench, keys.INODES) == 1 and len(collector._drained) == 3


async def test_storage_that_is_away_only_delays(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    await bench.remove("/a")
    await bench.pass_lease()
    bench.storage.down.update(node.address for node in bench.cluster.routing.nodes.values())
    assert await bench.collector.collect() == 0
    bench.storage.down.clear()
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


async def test_nothing_is_freed_any_more_when_it_has_been_stopped(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is closed then."""
    for number in range(4):
        await written(bench, f"/{number}")
        await bench.remove(f"/{number}")
    await bench.pass_lease()
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
    work = asyncio.create_task(bench.collector.collect())
    while under_way < 4:
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert under_way == 0


async def test_another_service_takes_over_and_two_do_no_harm(bench: MetaBench) -> None:
    files = [await written(bench, f"/d/{number}") for number in range(PAGE + 10)]
    await bench.remove("/d", recursive=True)
    both = [GarbageCollector(bench.context), GarbageCollector(bench.context)]
    for _ in range(2):  # the directory, then the files that were in it
        await bench.pass_lease()
        while any(await asyncio.gather(*(one.collect() for one in both))):
            pass
    assert not any(bench.chunk_numbers(file) for file in files)
    assert await left(bench, keys.INODES) == 1


async def test_files_that_wait_do_not_hold_up_the_others(bench: MetaBench) -> None:
    waiting = [(await bench.create(f"/w{number}", session=SESSION)).inode for number in range(PAGE + 5)]
    file = await written(bench, "/last")
    for number in range(len(waiting)):
        await bench.remove(f"/w{number}")
    await bench.remove("/last")
    await bench.pass_lease()
    for _ in range(4):
        await bench.collector.collect()
    assert bench.chunk_numbers(file) == []


async def test_it_runs_by_itself_until_it_is_stopped(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    bench.collector.start()
    await bench.remove("/a")
    await bench.pass_lease()
    while bench.chunk_numbers(file) or await left(bench, keys.REMOVALS):
        await asyncio.sleep(0)
    await bench.collector.stop()


async def _collect(fs: MetaBench, rounds: int = 12) -> None:
    """However it goes."""
    for _ in range(rounds):
        await fs.pass_ticks(2)
        await fs.collector.collect()


@pytest.mark.parametrize("mended", [False, True])
async def test_damaged_entries_of_a_removed_directory_hold_up_nothing(mended: bool) -> None:
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


async def test_chains_without_a_serving_target_delay_no_other_file(bench: MetaBench) -> None:
    """Nobody waits for them, and the files that lie there are looked at ever less often."""
    one = pb.Layout(stripe=1)
    made = [(await bench.create(f"/{number}", layout=one)).inode for number in range(2 * PAGE)]
    chains = [bench.chunks.chain_of(from_wire(file.layout), 0) for file in made]
    dead = chains[0]
    for file in made:
        await bench.write(file, 0, b"data")
    routing = bench.cluster.routing
    bench.cluster.routing = served_by_nobody(routing, dead)
    for number in range(len(made)):
        await bench.remove(f"/{number}")
    before, calls = bench.clock.monotonic(), len(bench.storage.calls)
    await bench.pass_lease()
    for _ in range(3):
        await bench.collector.collect()
    assert [bench.chunk_numbers(file) for file in made] == [[0] if one == dead else [] for one in chains]
    assert bench.clock.monotonic() - before < 60 and len(bench.storage.calls) - calls <= 2 * len(made)
    bench.cluster.routing = dataclasses.replace(routing, version=3)
    await _collect(bench)
    assert not any(bench.chunk_numbers(file) for file in made)


async def test_a_chain_that_takes_no_removals_delays_no_other(bench: MetaBench) -> None:
    """86 of 28,834 files were freed in a minute. Files that lie on that chain too lose what others have of them."""
    one, both = pb.Layout(stripe=1), pb.Layout(stripe=2, chunk_bytes=65536)
    made = []
    for name in range(4 * PAGE):
        file = (await bench.create(f"/{name}", session=SESSION, layout=one if name % 4 else both)).inode
        for number in range(file.layout.stripe):
            await bench.write(file, number * file.layout.chunk_bytes, b"data")
        end = number * file.layout.chunk_bytes + 4
        made.append(await bench.close(file, SESSION, length_hint=end, written=True))
    bad = bench.chunks.chain_of(from_wire(made[1].layout), 0)
    apply = bench.storage._apply

    def refuse(write: Any, chain: Any, part: bytes) -> Any:
        if chain == bad:
            raise TooFewReplicas("as a storage service does that knows no freed chunks")
        return apply(write, chain, part)

    bench.storage._apply = refuse  # type: ignore[method-assign]
    for number in range(len(made)):
        await bench.remove(f"/{number}")
    before = bench.clock.monotonic()
    await bench.pass_lease()
    for _ in range(6):
        await bench.collector.collect()
    for file in made:
        layout = from_wire(file.layout)
        kept = [n for n in range(layout.stripe) if bench.chunks.chain_of(layout, n) == bad]
        assert bench.chunk_numbers(file) == kept
    assert bench.clock.monotonic() - before < 90, "one try of the chain at a time"
    bench.storage._apply = apply  # type: ignore[method-assign]
    await _collect(bench, 24)
    assert not any(bench.chunk_numbers(file) for file in made) and not await left(bench, keys.REMOVALS)


async def test_chains_below_their_minimum_of_replicas_are_emptied(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    await end_writes(bench.context, file.inode, 0)
    assert bench.storage.fences
    await bench.remove("/a")
    bench.storage.short = set(bench.cluster.routing.chains)
    await bench.collect_all()
    assert bench.chunk_numbers(file) == [] and not bench.storage.fences and not await left(bench, keys.REMOVALS)


async def test_a_directory_whose_record_is_damaged_meanwhile_holds_up_no_file(bench: MetaBench) -> None:
    directory = await bench.mkdir("/d")
    await bench.create("/d/a")
    file = await written(bench, "/z")
    await bench.remove("/d", recursive=True)
    await bench.remove("/z")
    await bench.pass_lease()
    record = await damage.get(bench, keys.inode(directory.inode))
    drain = bench.collector._drain_directory

    async def damaged(item: Any) -> Any:
        await damage.put(bench, keys.inode(directory.inode), b"\1broken")
        return await drain(item)

    bench.collector._drain_directory = damaged  # type: ignore[method-assign]
    await bench.collector.collect()
    assert not bench.chunk_numbers(file)
    bench.collector._drain_directory = drain  # type: ignore[method-assign]
    await damage.put(bench, keys.inode(directory.inode), record)
    await _collect(bench)
    assert await damage.get(bench, keys.inode(directory.inode)) is None


async def test_a_directory_that_gets_its_name_back_keeps_its_entries(bench: MetaBench) -> None:
    """A repair came between the look at the queue and the removal of the first entries."""
    await bench.create("/d/a", parents=True)
    directory = await bench.stat("/d")
    await bench.remove("/d", recursive=True)
    drain, repaired = bench.collector._drain_directory, False

    async def after_repair(item: Any) -> Any:
        nonlocal repaired
        if not repaired:
            repaired = True
            named = pb.Inode.FromString(item.inode.SerializeToString())
            named.nlink = 1
            await damage.put_inode(bench, named)
            await damage.put_entry(bench, ROOT, b"d", named.inode, named.type)
            await damage.put_count(bench, ROOT, named.inode, True)
            await damage.put(bench, item.key, None)
        return await drain(item)

    bench.collector._drain_directory = after_repair  # type: ignore[method-assign]
    await bench.collect_all()
    assert repaired and (await bench.stat("/d")).inode == directory.inode and await bench.names("/d") == ["a"]


async def test_one_kind_of_work_that_fails_does_not_stop_the_others(bench: MetaBench) -> None:
    async def fails() -> int:
        raise Corrupt("a record")

    bench.collector.collect = fails  # type: ignore[method-assign]
    await bench.mkdir("/d")
    bench.collector.start()
    await bench.pass_ticks(math.ceil(REPLAYS_KEPT_S / bench.context.logical_clock.tick_s) + 2)
    deadline = asyncio.get_running_loop().time() + 20
    while await left(bench, keys.REPLAYS):
        assert asyncio.get_running_loop().time() < deadline
        await bench.pass_ticks(1)
        await asyncio.sleep(0)
    await bench.collector.stop()


async def test_what_cannot_be_freed_is_tried_ever_less_often(bench: MetaBench) -> None:
    file = await written(bench, "/a")
    await bench.remove("/a")
    await bench.pass_lease()
    bench.storage.down.update(node.address for node in bench.cluster.routing.nodes.values())
    tries, listing = 0, bench.chunks.chain_listing

    def counted(*what: Any, **how: Any) -> Any:
        nonlocal tries
        tries += 1
        return listing(*what, **how)

    bench.chunks.chain_listing = counted  # type: ignore[method-assign]
    for _ in range(32):
        await bench.pass_ticks(1)
        await bench.collector.collect()
    assert 3 <= tries <= 7
    bench.storage.down.clear()
    await _collect(bench)
    assert bench.chunk_numbers(file) == [] and not bench.collector._backoff_ticks


async def test_a_link_count_of_zero_under_a_name_stops_neither_the_collector_nor_a_removal(bench: MetaBench) -> None:
    damaged = [(await bench.create(path, parents=True)).inode for path in ("/file", "/d/file")]
    kept = (await bench.create("/other/file", parents=True)).inode
    for inode in damaged:
        inode.nlink = 0
        await damage.put_inode(bench, inode)
    with pytest.raises(Corrupt, match="link count is 0"):
        await bench.remove("/file")
    for directory in ("/d", "/other"):
        await bench.remove(directory, recursive=True)
    await bench.collect_all()
    assert await damage.get(bench, keys.inode(kept.inode)) is None, "others are freed"
    for inode in damaged:
        inode.nlink = 1  # as `threefs fsck` would repair it
        await damage.put_inode(bench, inode)
    await bench.remove("/file")
    await bench.collect_all()
    assert await left(bench, keys.INODES) == 1


async def test_an_inode_with_a_name_is_not_freed_though_it_is_queued(bench: MetaBench) -> None:
    file = await written(bench, "/file")
    await bench.create("/other")
    await bench.remove("/other")
    queued = (await bench.engine.begin().get_range(*keys.REMOVALS))[0][1]
    key = keys.removal(0, file.inode)
    await damage.put(bench, key, queued)
    await bench.collect_all()
    assert bench.chunk_numbers(file) == [0] and await bench.stat("/file") == file
    assert await left(bench, keys.INODES) == 2, "others are freed"
    await damage.put(bench, key, None)  # as `threefs fsck` would repair it
