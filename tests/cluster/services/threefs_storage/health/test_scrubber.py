"""Damage that nobody reads is found by the scrubber."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.chunk_record import Version
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.health.scrubber import Scrubber
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work

from tests.harness.chain_harness import OFFLINE, SERVING, SYNCING, Gate, Replica, TestChain, chain_of, until
from tests.harness.clocks import SteppedClock
from threefs.ids import ChunkId

CHUNKS = [ChunkId(7, number) for number in range(20)]


def comparison(chain: TestChain, node: int) -> Comparison:
    return chain[node].storage.scrubber._comparison


def make_scrubber(
    chain: TestChain,
    node: int,
    clock: SteppedClock,
    bytes_per_s: int = 32 << 20,
    interval_s: float = 7 * 86_400.0,
) -> Scrubber:
    scheduler = BackgroundScheduler(clock=clock, rates={Work.SCRUB: bytes_per_s})
    return Scrubber(interval_s, comparison(chain, node), scheduler, clock=clock)


async def pass_over(scrubber: Scrubber, passes: int) -> None:
    await until(lambda: scrubber.passes >= passes)


async def test_it_finds_damage_that_no_client_reads_and_has_it_repaired(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for chunk in CHUNKS:
            await chain.write(b"content" * 100, chunk=chunk)
        target = chain[2].target
        store = target.engine._store
        data = store._table.get(CHUNKS[3].key())
        assert data is not None
        store._table.write({CHUNKS[3].key(): bytes([data[0] ^ 128]) + data[1:]})
        committed = chain[2].record(CHUNKS[5]).committed
        assert committed is not None and committed.block is not None
        path = next((chain[2].directory / f"target-{target.target_id}" / "blocks").iterdir())
        with path.open("r+b") as file:
            file.seek((committed.block.slot << committed.block.bits) + 3)
            file.write(b"\xee")
        scrubber = make_scrubber(chain, 2, SteppedClock())
        scrubber.start([target])
        await pass_over(scrubber, 1)
        assert target.damaged_chunks_found == 2 and target.scrubbed_chunks >= len(CHUNKS)
        (report,) = chain[2].targets.reports()
        assert report.scrub_passes >= 1
        assert report.scrub_interval_ms == round(7 * 86_400_000.0)
        assert report.scrubbed_bytes >= (len(CHUNKS) - 1) * 700, "all but the one whose length nobody knows"
        await until(lambda: target.repaired_chunks == 2 and not target.damaged)
        for chunk in CHUNKS:
            assert await chain.read(2, chunk) == (1, b"content" * 100)
        await scrubber.stop()


async def test_it_keeps_to_its_pace(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        for chunk in CHUNKS:
            await chain.write(bytes(100_000), chunk=chunk)
        clock = SteppedClock()
        began = clock.monotonic()
        scrubber = make_scrubber(chain, 1, clock, bytes_per_s=100_000, interval_s=3600.0)
        scrubber.start([chain[1].target])
        await pass_over(scrubber, 1)
        assert clock.monotonic() - began >= len(CHUNKS)
        await pass_over(scrubber, 2)
        assert clock.monotonic() - began >= 3600
        await scrubber.stop()
        await asyncio.sleep(0)


async def test_it_goes_on_where_the_last_process_stopped(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chunks = [ChunkId(7, number) for number in range(600)]
        await asyncio.gather(*(chain.write(b"x", chunk=chunk, client=bytes(15) + b"c") for chunk in chunks))
        await chain[1].storage.scrubber.stop()
        target = chain[1].target
        target.engine.put_note("scrub", None)
        clock, stopped = SteppedClock(), asyncio.Event()

        def stop_at_the_300th_sleep() -> None:
            if len(clock.sleeps) == 300:
                clock.sleepers_wait = True
                stopped.set()

        clock.on_sleep = stop_at_the_300th_sleep
        scrubber = make_scrubber(chain, 1, clock)
        scrubber.start([target])
        await stopped.wait()
        await scrubber.stop()
        assert target.engine.note("scrub") == chunks[255].key()
        await chain[1].restart()
        await chain[1].storage.scrubber.stop()
        target = chain[1].target
        target.scrubbed_chunks = 0
        again = make_scrubber(chain, 1, SteppedClock())
        again.start([target])
        await pass_over(again, 1)
        await again.stop()
        assert target.scrubbed_chunks == 600 - 256 and target.engine.note("scrub") is None


async def test_it_outlives_a_target_whose_store_is_opened_anew_during_a_read(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(bytes(100_000))
        target = chain[2].target
        hold = chain[2].disk.hold_read = Gate()
        scrubber = make_scrubber(chain, 2, SteppedClock(), bytes_per_s=1 << 30, interval_s=0.0)
        scrubber.start([target])
        await hold.reached.wait()
        chain.change((1, SERVING), (2, OFFLINE))
        target.leaving = True
        await chain[2].targets.reopen(target)
        chain[2].disk.hold_read = None
        hold.open.set()
        before = scrubber.passes
        await pass_over(scrubber, before + 2)
        assert not target.damaged and target.engine.failure is None
        await scrubber.stop()


def regress(replica: Replica, chunk: ChunkId) -> None:
    """What it has committed last is not there any more, as if the disk had not written it."""
    engine = replica.target.engine
    committed = engine.record(chunk)
    assert committed is not None and committed.committed is not None
    engine._store.write({chunk: dataclasses.replace(committed, committed=older[chunk])})


older: dict[ChunkId, Version | None] = {}


@pytest.mark.parametrize("node", [1, 2, 3])
async def test_a_target_that_is_behind_its_neighbours_leaves_and_is_made_equal(node: int, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for chunk in CHUNKS:
            await chain.write(b"old", chunk=chunk)
        older[CHUNKS[3]] = chain[node].record(CHUNKS[3]).committed
        await chain.write(b"NEW", chunk=CHUNKS[3])
        regress(chain[node], CHUNKS[3])
        targets = [replica.target for replica in chain.replicas]
        scrubbers = [make_scrubber(chain, n, SteppedClock()) for n in (1, 2, 3)]
        for scrubber, target in zip(scrubbers, targets, strict=True):
            scrubber.start([target])
        await until(lambda: targets[node - 1].leaving)
        for scrubber in scrubbers:
            await scrubber.stop()
        assert [target.leaving for target in targets].count(True) == 1, "only the one that is wrong"
        others = [(n, SERVING) for n in (1, 2, 3) if n != node]
        chain.change(*others, (node, OFFLINE))
        await until(lambda: not targets[node - 1].leaving)
        targets[node - 1].leased_until = float("inf")
        chain.change(*others, (node, SYNCING))
        await until(lambda: targets[node - 1].synced_in_version == chain.version)
        chain.change(*others, (node, SERVING))
        assert await chain.read(node, CHUNKS[3]) == (2, b"NEW")


@pytest.mark.parametrize("kept", [0, 256])
async def test_a_target_that_lacks_all_chunks_behind_its_last_one_leaves(kept: int, tmp_path: Path) -> None:
    """Its own chunks do not say so: nothing of them is wrong, or there are none."""
    chunks = [ChunkId(7, number) for number in range(kept + 3)]
    async with chain_of(tmp_path, 2) as chain:
        await asyncio.gather(*(chain.write(b"x", chunk=chunk, client=bytes(15) + b"c") for chunk in chunks))
        target = chain[2].target
        target.engine._store.write(dict.fromkeys(chunks[kept:]))
        scrubber = make_scrubber(chain, 2, SteppedClock())
        scrubber.start([target])
        await until(lambda: target.leaving)
        await scrubber.stop()


async def test_an_empty_target_asks_nobody_before_its_second_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain_of(tmp_path, 2) as chain:
        asked: list[int] = []
        scrubber = make_scrubber(chain, 2, SteppedClock())

        async def watched(*_: Any) -> None:
            asked.append(scrubber.passes)

        monkeypatch.setattr(scrubber._comparison, "check", watched)
        scrubber.start([chain[2].target])
        await pass_over(scrubber, 3)
        await scrubber.stop()
        assert asked[:2] == [1, 2]
