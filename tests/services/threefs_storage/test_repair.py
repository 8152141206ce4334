"""Damaged chunks are served around and made good."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from threefs_storage.engine.engine import MOST_UNREADABLE

from tests.support.chain import CHUNK, OFFLINE, SERVING, Replica, TestChain, chain_of, flip_record, target_of, until
from tests.support.rpc import run
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, NotServing, OutcomeUnknown, Retry, Unavailable
from threefs.ids import ChunkId
from threefs.routing import LocalState
from threefs.rpc.methods import LAST_CHUNK, LIST_CHUNKS, QUERY_VERSION
from threefs.wire import storage_pb2 as pb

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


@pytest.mark.parametrize(
    ("method", "request_type", "more"),
    [
        (LAST_CHUNK, pb.LastChunkRequest, {"inode": CHUNK.inode}),
        (LIST_CHUNKS, pb.ListChunksRequest, {"inode": CHUNK.inode}),
        (QUERY_VERSION, pb.QueryVersionRequest, {"inode": [CHUNK.inode], "index": [CHUNK.number]}),
    ],
)
def test_who_asks_the_tail_for_a_damaged_record_may_ask_again(
    method: Any, request_type: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    """Found by the simulator: the length of a file could not be settled."""

    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT)
            request = request_type(target=target_of(3), chain_version=chain.version, **more)
            good = await chain.peers.call(chain[3].address, method, request, timeout_s=20)
            flip_record(chain[3])
            with pytest.raises(Unavailable) as raised:
                await chain.peers.call(chain[3].address, method, request, timeout_s=20)
            assert raised.value.retry is Retry.SAFE
            await check_repaired(chain, 3)
            assert await chain.peers.call(chain[3].address, method, request, timeout_s=20) == good

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


def test_where_every_copy_is_damaged_it_stays_an_error_told_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT)
            for node in (1, 2, 3):
                await flip_content(chain[node])
            with capture_logs() as logs:
                for _ in range(3):
                    with pytest.raises(CorruptChunk):
                        await chain.read(1)
                    await asyncio.sleep(0.3)
                told = [log["target"] for log in logs if log["event"] == "a damaged chunk is not good elsewhere"]
            assert told.count(chain[1].target_id) == 1
            for replica in chain.replicas:
                (report,) = replica.targets.reports()
                assert (report.damaged_chunks, report.repaired_chunks, report.unrepaired_chunks) == (1, 0, 1)
                with pytest.raises(CorruptChunk):
                    await chain.read(replica.node)
                replica.target.damaged.clear()

    run(test)


def spoil(replica: Replica, chunk: ChunkId = CHUNK) -> None:
    """Where this chunk lies now nothing can be read any more."""
    committed = replica.record(chunk).committed
    assert committed is not None and committed.block is not None
    bits, slot = committed.block
    replica.disk.bad.add((f"{1 << bits >> 10}KiB.blocks", (slot << bits) + committed.length // 2))


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_place_that_cannot_be_read_is_damage_of_one_chunk(node: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(b"before")
            await chain.write(CONTENT)
            spoil(chain[node])
            with pytest.raises(DiskFailed):
                await chain.read(node)
            await check_repaired(chain, node)
            assert chain[node].target.engine.failure is None and not chain[node].target.left

    run(test)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_write_that_must_copy_what_cannot_be_read_waits_for_the_repair(node: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            await chain.write(CONTENT)
            chain[node].disk.cold = True
            spoil(chain[node])
            row = chain.row(b"XYZ", 5)

            async def write() -> bool:
                with contextlib.suppress(Unavailable, OutcomeUnknown):
                    return (await chain.send(row, b"XYZ")).version > 1
                return False

            while not await write():
                await asyncio.sleep(0.05)
            target = chain[node].target
            await until(lambda: target.repaired == 1 and not target.damaged)
            for replica in (1, 2, 3):
                _, content = await chain.read(replica)
                assert content == CONTENT[:5] + b"XYZ" + CONTENT[8:]
            assert target.engine.failure is None

    run(test)


def test_many_places_that_cannot_be_read_are_the_end_of_the_disk(tmp_path: Path) -> None:
    async def test() -> None:
        async with chain_of(tmp_path) as chain:
            chunks = [ChunkId(8, number) for number in range(MOST_UNREADABLE)]
            for chunk in chunks:
                await chain.write(CONTENT, chunk=chunk)
                spoil(chain[2], chunk)
            reported = 0

            def report() -> None:
                nonlocal reported
                reported += 1

            target = chain[2].target
            target.report = report
            chain.change((1, SERVING), (3, SERVING), (2, SERVING), learned_by=[2])  # so that repairs do not succeed
            for chunk in chunks:
                assert not target.broken
                with pytest.raises(DiskFailed):
                    await chain.read(2, chunk)
            assert target.broken and target.left and reported == 1
            assert target.local_state is LocalState.OFFLINE
            with pytest.raises(NotServing):
                await chain.read(2, chunks[0])

    run(test)
