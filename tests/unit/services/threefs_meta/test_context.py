"""What the operations work with."""

import dataclasses

import pytest
from threefs_meta.context import FileChunks

from tests.harness.meta_harness import MetaBench
from threefs.errors import Conflict, MaybeCommitted, NotServing
from threefs.ids import InodeId, TableId
from threefs.kv.engine_api import Transaction
from threefs.layout import FileLayout
from threefs.routing import EMPTY

LAYOUT = FileLayout(chunk_bytes=1 << 20, table_id=TableId(1), stripe=2)


async def test_the_context_is_frozen() -> None:
    bench = await MetaBench().start()
    with pytest.raises(dataclasses.FrozenInstanceError):
        bench.context.routing = lambda: EMPTY  # type: ignore[misc]


async def test_the_chunk_client_is_what_is_needed_and_fails_with_one_error() -> None:
    bench = await MetaBench().start()
    chunks: FileChunks = bench.chunks
    assert await chunks.file_length(LAYOUT, InodeId(2), timeout_s=1) == 0
    assert [page async for page in chunks.listing(LAYOUT, InodeId(2), timeout_s=1)] == []
    assert await chunks.apply([], timeout_s=1) == []
    routing = bench.cluster.routing
    bench.cluster.routing = dataclasses.replace(routing, chains={})
    with pytest.raises(NotServing):  # not a group of them, though both chains were asked at once
        await chunks.file_length(LAYOUT, InodeId(2), timeout_s=1)


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_transaction_of_unknown_outcome_runs_again(is_committed: bool) -> None:
    bench = await MetaBench().start()
    runs = 0

    async def work(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        if await tx.get(b"\xfe/once") is None:
            tx.set(b"\xfe/once", b"")
        if runs == 1:
            if is_committed:
                await tx.commit()
            raise MaybeCommitted("the answer was lost")
        return runs

    assert await bench.context.transact(work) == 2
    assert await bench.context.transact(lambda tx: tx.get(b"\xfe/once")) == b""


async def test_what_is_stamped_after_the_store_was_away_is_due_as_soon_as_ever(bench: MetaBench) -> None:
    ticks = bench.context.logical_clock

    async def stamp(tx: Transaction) -> int:
        return ticks.stamp()

    bench.clock.advance(100 * ticks.tick_s)
    assert await bench.context.transact(stamp) == ticks.tick + 1


async def test_what_is_stamped_in_a_repeat_after_the_store_was_away_is_due_as_soon_as_ever(bench: MetaBench) -> None:
    ticks, runs = bench.context.logical_clock, 0

    async def stamp(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            bench.clock.advance(100 * ticks.tick_s)
            raise Conflict("the store was away when this was to be committed")
        return ticks.stamp()

    assert await bench.context.transact(stamp, timeout_s=200 * ticks.tick_s) == ticks.tick + 1
