"""Damaged chunks are served around and made good."""

import asyncio
from pathlib import Path

import pytest

from tests.support.chain import CHUNK, OFFLINE, SERVING, Replica, TestChain, chain_of, until
from tests.support.rpc import run
from threefs.errors import Corrupt, CorruptChunk

CONTENT = b"what was written" * 5000


async def flip_content(replica: Replica) -> None:
    committed = replica.record().committed
    assert committed is not None and committed.block is not None
    name = f"{1 << committed.block.bits >> 10}KiB.blocks"
    path = replica.directory / f"target-{replica.target_id}" / "blocks" / name
    with path.open("r+b") as file:
        at = (committed.block.slot << committed.block.bits) + 1000
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def flip_record(replica: Replica) -> None:
    store = replica.target.engine._store
    data = store._table.get(CHUNK.key())
    assert data is not None
    store._table.write({CHUNK.key(): data[:20] + bytes([data[20] ^ 1]) + data[21:]})
    store._young.clear()
    store._old.clear()


async def check_repaired(chain: TestChain, node: int) -> None:
    target = chain[node].target
    await until(lambda: target.repaired == 1 and not target.damaged)
    assert await chain.read(node) == (2, CONTENT)
    assert chain[node].state().entries == chain[1 if node != 1 else 2].state().entries
    assert target.damage_found == 1


@pytest.mark.parametrize("node", [1, 2, 3])
def test_damaged_bytes_are_an_error_here_and_then_repaired(node: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT)
            await flip_content(chain[node])
            with pytest.raises(CorruptChunk):
                await chain.read(node)
            await check_repaired(chain, node)
            assert (await chain.write(b"after")).version == 3, "and writes go on"

    run(test)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_damaged_record_comes_back_with_its_results(node: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT, seq=2)
            flip_record(chain[node])
            with pytest.raises(Corrupt):
                await chain.read(node)
            await check_repaired(chain, node)
            assert (await chain.write(CONTENT, seq=2)).version == 2, "a repeat is recognised (I6)"

    run(test)


def test_where_no_other_replica_serves_damage_stays_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path, 2) as chain:
            await chain.write(CONTENT)
            chain.change((1, SERVING), (2, OFFLINE))
            await flip_content(chain[1])
            for _ in range(3):
                with pytest.raises(CorruptChunk):
                    await chain.read(1)
                await asyncio.sleep(0.1)
            assert chain[1].target.damage_found == 1 and not chain[1].target.repaired
            chain[1].target.damaged.clear()

    run(test)


def test_two_damaged_copies_are_both_made_good_from_the_third(tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT)
            await flip_content(chain[1])
            await flip_content(chain[2])
            for node in (1, 2):
                with pytest.raises(CorruptChunk):
                    await chain.read(node)
            for node in (1, 2):
                await check_repaired(chain, node)

    run(test)
