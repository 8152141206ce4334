"""The write path towards a syncing target: whole chunks, and what it held from before gives way."""

import asyncio
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record

from tests.harness.chain_harness import CLIENT, OFFLINE, SERVING, SYNCING, Gate, TestChain, chain_of, until
from threefs.errors import (
    NoSpace,
    NotServing,
    OutcomeUnknown,
    ThreefsError,
    Unavailable,
    VersionGap,
)
from threefs.ids import ChunkId, WriteIdentity
from threefs.rpc.methods import SYNC_DONE, WRITE
from threefs.wire import storage_pb2 as pb


async def make_syncing(chain: TestChain) -> None:
    chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
    chain.change((1, SERVING), (2, SERVING), (3, SYNCING))


async def test_r4_r6_a_syncing_successor_gets_the_whole_chunk_with_its_entries(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"whole ", seq=1, client=b"a" * 16)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await chain.write(b"chunk", offset=6, seq=2)
        kinds = {write.kind for write in chain[2].peers.writes()}
        assert kinds == {pb.REPLACE}
        assert chain[3].state() == chain[2].state() == chain[1].state()
        with pytest.raises(NotServing):
            await chain.read(3)
        chain.change((3, SERVING), (1, OFFLINE), (2, OFFLINE))
        assert await chain.read(3) == (2, b"whole chunk")
        assert (await chain.write(b"whole ", seq=1, client=b"a" * 16)).version == 1, "a repeat is recognised (R6)"


async def test_a_replace_mends_other_content_under_the_same_version(tmp_path: Path) -> None:
    """I13: a syncing target that holds other content of this chain version takes that of its predecessor."""
    async with chain_of(tmp_path) as chain:
        await make_syncing(chain)
        await chain.write(b"odd", node=3, version=1, kind=pb.REPLACE)
        await chain.write(b"one", node=3, version=1, kind=pb.REPLACE)
        chain.change((3, SERVING), (1, OFFLINE), (2, OFFLINE))
        assert await chain.read(3) == (1, b"one")


async def test_r4_a_syncing_target_refuses_a_part(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await make_syncing(chain)
        with pytest.raises(VersionGap):
            await chain.write(b"part", node=3, version=1)


async def test_r5_a_syncing_target_is_replaced_whatever_it_held(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for _ in range(3):
            await chain.write(b"long ago", node=3, version=chain[3].committed() + 1, client=b"l" * 16)
        assert (chain[2].committed(), chain[3].committed()) == (0, 3)
        await make_syncing(chain)
        await chain.write(b"now")
        assert (chain[3].committed(), chain[3].record().entries) == (1, chain[2].record().entries)


async def test_r5_a_replace_never_lowers_what_came_under_the_same_chain_version(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await make_syncing(chain)
        for version in (2, 1):  # the older one was delayed
            await chain.write(b"v%d" % version, node=3, version=version, kind=pb.REPLACE)
        chain.change((3, SERVING))
        assert await chain.read(3) == (2, b"v2")


async def stuck_at(chain: TestChain, node: int) -> None:
    """A pending version 1 that does not get on."""
    await chain[node].storage.stop()  # nobody takes up what is given up
    await chain.give_up(node, chain.row(b"void", node=node, version=node - 1, client=b"v" * 16), b"void")


async def done(chain: TestChain, node: int) -> None:
    """As the predecessor says it when nothing is missing there any more."""
    request = pb.SyncDoneRequest(target=chain[node].target.target_id, chain_version=chain.version)
    await chain.peers.call(chain[node].address, SYNC_DONE, request, timeout_s=20)


async def test_r5_a_syncing_target_drops_what_is_pending_before_it_may_serve(tmp_path: Path) -> None:
    """Not at once: its bytes may be the only good ones."""
    async with chain_of(tmp_path) as chain:
        await stuck_at(chain, 2)
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        assert chain[2].pending() == 1, "not yet: it might have to serve alone"
        chain.change((1, SERVING), (3, SERVING), (2, SYNCING))
        assert chain[2].pending() == 1 and chain[2].committed() == 0
        await done(chain, 2)
        assert chain[2].record() == Record()


async def test_r5_what_a_syncing_target_has_dropped_is_gone_before_it_may_serve(tmp_path: Path) -> None:
    """Found with a fence: the manager had made it a serving target, and the power went before it had stored that. It
    came back first, alone, and finished the version that the fence had ended."""
    async with chain_of(tmp_path) as chain:
        await stuck_at(chain, 2)
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        chain.change((1, SERVING), (3, SERVING), (2, SYNCING))
        before = chain[2].target.engine.generation
        await done(chain, 2)
        assert chain[2].record() == Record() and chain[2].target.engine.generation > before, "the drop is durable"


async def test_r5_a_write_under_way_is_not_committed_by_a_target_that_became_syncing(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[1].peers.before = gate
        write = asyncio.create_task(chain.write(b"void"))
        await gate.reached.wait()
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        chain.change((2, SERVING), (3, SERVING), (1, SYNCING))
        assert chain[1].pending() == 1, "its lock is held"
        gate.open.set()
        with pytest.raises(OutcomeUnknown):
            await write
        await until(lambda: not len(chain[1].target.locks))
        assert chain[1].committed() == 0
        await done(chain, 1)
        assert chain[1].record() == Record()


async def test_r5_a_replace_that_was_on_its_way_through_a_chain_change_is_void(tmp_path: Path) -> None:
    """Committed late, it would pass for something that came under the new chain version, and keep newer ones out."""
    async with chain_of(tmp_path) as chain:
        await make_syncing(chain)
        gate = chain[3].disk.hold_sync = Gate()
        write = asyncio.create_task(chain.write(b"stale", node=3, version=7, kind=pb.REPLACE))
        await gate.reached.wait()
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        gate.open.set()
        with pytest.raises(NotServing):
            await write
        await until(lambda: not len(chain[3].target.locks))
        assert chain[3].committed() == 0
        await done(chain, 3)
        assert chain[3].pending() == 0


async def test_a_replace_may_have_no_identity(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await make_syncing(chain)
        await chain.write(b"x", node=3, version=4, kind=pb.REPLACE, identity=None)
        committed = chain[3].record().committed
        assert committed is not None and committed.identity is None
        await chain.write(b"y", node=3, version=5, kind=pb.REPLACE)
        committed = chain[3].record().committed
        assert committed is not None and committed.identity == WriteIdentity(CLIENT, 1, chain.seq)
        assert chain[3].peers.count(WRITE) == 0


async def test_a_change_that_wakes_up_after_a_resync_is_void(tmp_path: Path) -> None:
    """Found by simulation: its process was stopped while it wrote; meanwhile it was put out, resynced and readmitted as
    the tail. It must not commit alone what it has in hand."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        chain[1].peers.sends_ahead = False  # or the next head has the write, and finishes it
        gate = chain[1].disk.hold_sync = Gate()
        write = asyncio.create_task(chain.write(b"new", seq=2))
        await gate.reached.wait()
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        chain.change((2, SERVING), (3, SERVING), (1, SYNCING))
        await until(lambda: chain[1].target.synced_in_version == chain.version)
        chain.change((2, SERVING), (3, SERVING), (1, SERVING))
        chain[1].disk.hold_sync = None
        gate.open.set()
        before = chain[1].target.engine.generation
        with pytest.raises(NotServing):
            await write
        assert chain[1].committed() == 1 and not chain[1].pending()
        assert chain[1].target.engine.generation == before, "it was never pending: a crash may not bring it back"
        assert (await chain.write(b"later", seq=3)).version == 2
        assert chain[1].state() == chain[2].state() == chain[3].state()


async def test_r5_a_pending_version_that_cannot_be_dropped_holds_the_promotion_up(tmp_path: Path) -> None:
    """Found by the simulator: the disk was full, so the version outlived the resync, and was finished afterwards."""
    async with chain_of(tmp_path) as chain:
        await stuck_at(chain, 2)
        target = chain[2].target
        drop = target.engine.drop_pending

        def full(chunk: ChunkId) -> None:
            raise NoSpace("full")

        target.engine.drop_pending = full  # type: ignore[method-assign]
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        chain.change((1, SERVING), (3, SERVING), (2, SYNCING))
        with pytest.raises(Unavailable, match="cannot be dropped yet"):
            await done(chain, 2)
        assert target.synced_in_version != chain.version and chain[2].pending()
        target.engine.drop_pending = drop  # type: ignore[method-assign]
        await done(chain, 2)
        assert target.synced_in_version == chain.version and not chain[2].pending()


async def test_r12_a_change_that_slept_while_its_target_was_out_is_void(tmp_path: Path) -> None:
    """Its disk is slow. Meanwhile the others have gone on, and the resync has found nothing that differs."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        chain[2].peers.sends_ahead = False
        chain[2].disk.hold_sync = gate = Gate()
        row = chain.ahead_row(2, b"new", 2)
        change = asyncio.create_task(chain.send(row, b"new"))
        await gate.reached.wait()
        chain.change((3, SERVING), (2, OFFLINE), (1, OFFLINE))
        chain.change((3, SERVING), (2, SYNCING), (1, OFFLINE))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        chain.change((3, SERVING), (2, SERVING), (1, OFFLINE))
        chain[2].disk.hold_sync = None
        gate.open.set()
        with pytest.raises(ThreefsError):
            await change
        await until(lambda: not len(chain[2].target.locks))
        assert chain[2].pending() == 0
        assert await chain.read(2) == await chain.read(3) == (1, b"old")
