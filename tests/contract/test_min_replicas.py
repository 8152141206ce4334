"""A chain with fewer serving targets than it needs takes no writes of clients, and acknowledges none."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from threefs_manager.service import Manager

from tests.harness.chain_harness import (
    CHUNK,
    CHUNK_BYTES,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    cancelled,
    chain_of,
    until,
)
from tests.harness.manager_bench import Bench
from tests.harness.manager_bench import run as run_manager
from tests.harness.small_disk import small_disk
from tests.unit.services.threefs_manager.test_service import PLAN, plan
from threefs.errors import (
    AlreadyExists,
    ChunkNotFound,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    Retry,
    ThreefsError,
    TooFewReplicas,
)
from threefs.ids import ChunkId
from threefs.wire import manager_pb2
from threefs.wire import storage_pb2 as pb


def need(chain: TestChain, minimum: int) -> None:
    """As an administrator who changes it: no chain version is new."""
    chain.min_replicas = minimum
    for replica in chain.replicas:
        replica.cluster.learn(chain.routing())


async def test_a_lone_target_takes_no_writes_but_is_read(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        need(chain, 2)
        await chain.write(b"abc")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"two")
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        said = "chain 1 has 1 of 3 copies, and at least 2 are needed"
        for row, content in (
            (chain.row(b"one"), b"one"),
            (chain.row(kind=pb.TRUNCATE, length=1), b""),
            (chain.row(kind=pb.REMOVE, chunk_bytes=0), b""),
        ):
            with pytest.raises(TooFewReplicas, match=said) as caught:
                await chain.send(row, content)
            assert caught.value.retry is Retry.REFRESH, "clients try again until their deadline"
        assert await chain.read(1) == (2, b"two") and chain[1].pending() == 0
        need(chain, 1)
        assert (await chain.write(b"one")).version == 3, "the minimum was lowered"


async def test_a_chunk_that_no_file_has_any_more_is_removed_by_a_lone_target(tmp_path: Path) -> None:
    """A cluster whose chains are short of copies because disks are full could not be emptied. The others learn of the
    removal when they return."""
    async with chain_of(tmp_path) as chain:
        need(chain, 2)
        await chain.write(b"abc")
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        for kind in (pb.WRITE, pb.TRUNCATE, pb.EXTEND):
            with pytest.raises(TooFewReplicas):
                await chain.send(chain.row(kind=kind, freed=True))
        removed = await chain.send(chain.row(kind=pb.REMOVE, chunk_bytes=0, freed=True))
        assert removed.version == 2
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        await until(lambda: chain[2].committed() == 2)
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        with pytest.raises(ChunkNotFound):
            await chain.read(2)


async def test_a_removal_that_ends_on_too_few_is_acknowledged(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        need(chain, 2)
        await chain.write(b"abc")
        gate = chain[1].peers.before = Gate()
        remove = asyncio.create_task(chain.send(chain.row(kind=pb.REMOVE, chunk_bytes=0, freed=True)))
        await gate.reached.wait()
        chain[1].peers.before = None
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        gate.open.set()
        assert (await remove).version == 2


async def test_full_replicas_whose_chain_lacks_copies_are_emptied(tmp_path: Path) -> None:
    """The head has a version pending that the full ones have no block for: the chain stays below its minimum."""
    with small_disk(tmp_path / "node-2", "48m"):
        async with chain_of(tmp_path, 2) as chain:
            need(chain, 2)
            written = 0
            while not chain[2].target.leaving:
                with contextlib.suppress(ThreefsError):
                    await chain.write(bytes(CHUNK_BYTES), chunk=ChunkId(7, written), timeout_s=2.0)
                written += 1
            assert chain[1].pending(ChunkId(7, written - 1))
            chain.change((1, SERVING), (2, OFFLINE))
            for number in range(written):
                row = chain.row(kind=pb.REMOVE, chunk_bytes=0, chunk=ChunkId(7, number), freed=True)
                await chain.send(row)
            assert not any(chain[1].state(ChunkId(7, number)).pending for number in range(written))


async def test_the_error_says_why_the_others_do_not_serve(tmp_path: Path) -> None:
    with small_disk(tmp_path / "node-2", "48m"):
        async with chain_of(tmp_path) as chain:
            need(chain, 2)
            for number in range(200):
                if chain[2].target.leaving:
                    break
                with contextlib.suppress(ThreefsError):
                    await chain.write(bytes(CHUNK_BYTES), chunk=ChunkId(7, number), timeout_s=2.0)
            assert chain[2].target.leaving
            await chain[3].stop()
            chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
            with pytest.raises(TooFewReplicas) as caught:
                await chain.write(b"x")
            said = caught.value.message
            assert "the disk of node 2 is full, node 3 does not answer" in said and "remove files" in said
            assert str(tmp_path) not in said


async def test_a_target_that_syncs_does_not_count(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        need(chain, 2)
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        with pytest.raises(TooFewReplicas):
            await chain.write(b"x")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"x")


async def test_a_write_that_ends_on_too_few_is_not_acknowledged(tmp_path: Path) -> None:
    """It was admitted while there were enough. What is pending is finished; sent again it is acknowledged only when
    enough serve."""
    async with chain_of(tmp_path) as chain:
        need(chain, 2)
        gate = chain[1].peers.before = Gate()
        row = chain.row(b"data")
        write = asyncio.create_task(chain.send(row, b"data"))
        await gate.reached.wait()
        chain[1].peers.before = None
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        gate.open.set()
        with pytest.raises(OutcomeUnknown, match="too few targets have the write"):
            await write
        await until(lambda: chain[1].committed() == 1)
        again = chain.row(b"data", seq=row.identity.seq, again=True)
        with pytest.raises(TooFewReplicas):
            await chain.send(again, b"data")
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        await until(lambda: chain[2].committed() == 1)  # by resync
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        again = chain.row(b"data", seq=row.identity.seq, again=True)
        assert (await chain.send(again, b"data")).version == 1, "its own result"
        assert await chain.read(2) == (1, b"data")


async def test_what_was_pending_is_finished_by_a_lone_target(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        need(chain, 3)
        gate = chain[1].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"data"))
        await gate.reached.wait()
        await cancelled(write)
        await until(lambda: not any(session.calls for session in chain[1].server._connections))
        chain[1].peers.before = None
        gate.open.set()
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        await until(lambda: chain[1].committed(CHUNK) == 1)
        assert await chain.read(1) == (1, b"data")


# ---- the minimum of replicas


@pytest.mark.parametrize(("replicas", "minimum"), [(1, 1), (2, 1), (3, 2)])
def test_half_of_all_must_serve(replicas: int, minimum: int) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(plan("a", "b", "c", replicas=replicas))
        status = await manager.get_status(manager_pb2.GetStatusRequest())
        assert [table.min_replicas for table in status.tables] == [minimum]

    run_manager(body)


def test_the_minimum_is_chosen_and_changed() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        chosen = plan("a", "b", "c")
        chosen.min_replicas = 3
        for wrong in (4, 100):
            bad = plan("a", "b", "c")
            bad.min_replicas = wrong
            with pytest.raises(InvalidArgument, match="must be 1 to 3"):
                await manager.init(bad)
        made = await manager.init(chosen)
        assert await manager.init(chosen) == await manager.init(PLAN) == made, "the same, or none is named"
        chosen.min_replicas = 1
        with pytest.raises(AlreadyExists, match="with a minimum of 3 replicas, not 1; `threefs chain min-replicas 1`"):
            await manager.init(chosen)
        versions = [chain.version for chain in (await manager.get_status(manager_pb2.GetStatusRequest())).chains]
        await manager.set_min_replicas(manager_pb2.SetMinReplicasRequest(table_id=1, min_replicas=1))
        await manager.set_min_replicas(manager_pb2.SetMinReplicasRequest(table_id=1, min_replicas=1))
        status = await manager.get_status(manager_pb2.GetStatusRequest())
        assert (status.routing_version, status.tables[0].min_replicas) == (2, 1)
        assert [chain.version for chain in status.chains] == versions, "no chain is disturbed"
        for table, minimum, error in ((1, 0, InvalidArgument), (1, 4, InvalidArgument), (2, 1, NotFound)):
            with pytest.raises(error):
                await manager.set_min_replicas(manager_pb2.SetMinReplicasRequest(table_id=table, min_replicas=minimum))

    run_manager(body)
