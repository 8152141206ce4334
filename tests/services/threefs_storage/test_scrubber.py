"""Damage that nobody reads is found by the scrubber."""

import asyncio
from pathlib import Path

from threefs_storage.scrubber import Pace, Scrubber

from tests.support.chain import chain_of, until
from tests.support.clocks import SteppedClock
from tests.support.rpc import run
from threefs.ids import ChunkId

CHUNKS = [ChunkId(7, number) for number in range(20)]


async def pass_over(scrubber: Scrubber, passes: int) -> None:
    await until(lambda: scrubber.passes >= passes)


def test_it_finds_what_nobody_reads_and_has_it_repaired(tmp_path: Path) -> None:
    async def test() -> None:
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
            scrubber = Scrubber(Pace(), clock=SteppedClock())
            scrubber.begin([target])
            await pass_over(scrubber, 1)
            assert target.damage_found == 2 and target.scrubbed >= len(CHUNKS)
            (report,) = chain[2].targets.reports()
            assert report.scrub_passes >= 1
            assert report.scrubbed_bytes >= (len(CHUNKS) - 1) * 700, "all but the one whose length nobody knows"
            await until(lambda: target.repaired == 2 and not target.damaged)
            for chunk in CHUNKS:
                assert await chain.read(2, chunk) == (1, b"content" * 100)
            await scrubber.stop()

    run(test)


def test_it_keeps_to_its_pace(tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path, 2) as chain:
            for chunk in CHUNKS:
                await chain.write(bytes(100_000), chunk=chunk)
            clock = SteppedClock()
            began = clock.monotonic()
            scrubber = Scrubber(Pace(bytes_per_s=100_000, interval_s=3600.0), clock=clock)
            scrubber.begin([chain[1].target])
            await pass_over(scrubber, 1)
            assert clock.monotonic() - began >= len(CHUNKS)
            await pass_over(scrubber, 2)
            assert clock.monotonic() - began >= 3600
            await scrubber.stop()
            await asyncio.sleep(0)

    run(test)
