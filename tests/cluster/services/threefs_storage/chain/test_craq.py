"""Writes through a chain of three, rule by rule."""

import asyncio
import contextlib
import math
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, Gate, cancelled, chain_of, flip_record, until
from threefs.env.clock import CLOCK
from threefs.errors import (
    ChainChanged,
    ChecksumMismatch,
    ChunkChanged,
    ChunkNotFound,
    InvalidArgument,
    NotServing,
    OutcomeUnknown,
    StaleWrite,
    Unavailable,
    VersionGap,
)
from threefs.wire import storage_pb2 as pb


async def test_a_write_is_read_at_every_replica(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        first = await chain.write(b"abcdef")
        assert (first.version, first.length) == (1, 6)
        second = await chain.write(b"XY", offset=2)
        assert second.version == 2
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"abXYef")
            assert chain[node].pending() == 0
            assert chain[node].state() == chain[1].state(), "replicas are equal (I4)"


async def test_every_kind_of_change_reaches_all(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"x" * 100)
        await chain.send(chain.row(kind=pb.TRUNCATE, length=10))
        await chain.send(chain.row(kind=pb.EXTEND, length=20))
        for node in (1, 2, 3):
            assert await chain.read(node) == (3, b"x" * 10 + bytes(10))
        await chain.send(chain.row(kind=pb.REMOVE, chunk_bytes=0))
        for node in (1, 2, 3):
            with pytest.raises(ChunkNotFound):
                await chain.read(node)
        assert (await chain.write(b"new")).version == 5, "versions go on after a removal"
        assert await chain.read(3) == (5, b"new")


async def test_r11_the_head_acknowledges_only_after_its_successor(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[2].peers.before = gate
        write = asyncio.create_task(chain.write(b"slow"))
        await gate.reached.wait()
        assert (chain[1].pending(), chain[2].pending(), chain[3].pending()) == (1, 1, 0), "durable, then forwarded"
        assert (chain[1].committed(), chain[2].committed()) == (0, 0), "not committed before the successor has"
        assert not write.done()
        gate.open.set()
        await write
        assert [replica.committed() for replica in chain.replicas] == [1, 1, 1]


async def test_r3_the_successor_is_looked_up_when_the_version_is_durable(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = chain[1].disk.hold_sync = Gate()
        write = asyncio.create_task(chain.write(b"data"))
        await gate.reached.wait()
        assert not chain[1].peers.sent, "it is not durable yet"
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        gate.open.set()
        assert (await write).version == 1
        assert chain[2].record() == Record(), "nothing went to the old successor"
        assert await chain.read(3) == (1, b"data")


async def test_r3_a_chain_change_while_forwarding_sends_it_to_the_new_successor(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[1].peers.before = gate
        write = asyncio.create_task(chain.write(b"data"))
        await gate.reached.wait()
        chain[1].peers.before = None
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        gate.open.set()  # the call goes to a target that has left the chain
        assert (await write).version == 1
        assert chain[2].record() == Record()
        assert chain[3].committed() == 1


async def test_r3_a_success_in_an_old_chain_version_is_no_commit(tmp_path: Path) -> None:
    """The successor said yes, but meanwhile another one follows: it must have the version too (I3)."""
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        gate = Gate()
        chain[1].peers.after = gate
        write = asyncio.create_task(chain.write(b"data"))
        await gate.reached.wait()
        assert chain[2].committed() == 1
        chain[1].peers.after = None
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        gate.open.set()
        await write
        assert chain[3].committed() == 1


@pytest.mark.parametrize("difference", [-1, 1])
async def test_r3_a_write_of_another_chain_version_is_refused(tmp_path: Path, difference: int) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, SERVING))
        with pytest.raises(ChainChanged):
            await chain.write(b"x", chain_version=chain.version + difference)
        with pytest.raises(ChainChanged):
            await chain.write(b"x", node=2, version=1, chain_version=chain.version + difference)
        assert chain[1].record() == chain[2].record() == Record()
        assert chain[1].cluster.refreshes == (1 if difference > 0 else 0), "for a newer one it asks first"


async def test_a_write_of_a_newer_chain_version_waits_for_the_routing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain[1].cluster.upcoming = chain.change((1, SERVING), (2, SERVING), learned_by=[2])
        assert (await chain.write(b"x")).version == 1
        assert chain[1].target.chain.version == chain.version


async def test_r3_the_chain_version_is_checked_again_under_the_lock(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        async with chain[1].target.locks.hold(CHUNK, 20), chain[2].target.locks.hold(CHUNK, 20):
            waiting = asyncio.create_task(chain.write(b"x"))
            forwarded = asyncio.create_task(chain.write(b"x", node=2, version=1))
            await until(lambda: all(chain[n].target.locks._locks[CHUNK][1] == 2 for n in (1, 2)))
            chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        for task in (waiting, forwarded):
            with pytest.raises(ChainChanged):
                await task
        assert chain[1].record() == chain[2].record() == Record()


async def test_clients_write_at_the_head_only_and_no_peer_writes_at_a_target_that_is_out(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        for node, version in ((2, 0), (3, 0), (3, 1)):
            with pytest.raises(NotServing):
                await chain.write(b"x", node=node, version=version)
        with pytest.raises(NotServing, match="no target"):
            await chain.write(b"x", target=102)


@pytest.mark.parametrize("kind", [pb.WRITE, pb.REPLACE])
async def test_r4_a_gap_is_refused(tmp_path: Path, kind: int) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"one")
        with pytest.raises(VersionGap):
            await chain.write(b"x", node=2, version=3, kind=kind)
        assert chain[2].committed() == 1
        assert chain[2].target.leaving, "it lacks what its predecessor has committed (I13)"


async def test_a_forward_that_comes_again_is_success_and_changes_nothing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        first = await chain.write(b"a", seq=1)
        await chain.write(b"b", offset=1, seq=2)
        before = chain[2].record()
        again = await chain.write(b"a", node=2, version=1, seq=1)
        assert again.version == 2, "what is committed here now"
        again = await chain.write(b"b", offset=1, node=2, version=2, seq=2)
        assert (again.version, again.length) == (2, 2)
        assert chain[2].record() == before and first.version == 1


async def test_a_forward_of_what_is_pending_is_driven_on_not_staged_again(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain[2].storage.stop()  # nobody takes up what is given up
        await chain.give_up(2, chain.row(b"a", node=2, version=1, seq=1), b"a")
        staged = chain[2].record().pending
        chain[2].peers.before = None
        again = await chain.write(b"a", node=2, version=1, seq=1)
        assert staged is not None and (again.version, again.checksum) == (1, staged.checksum)
        assert chain[3].committed() == 1


async def test_r6_the_same_identity_gets_the_same_result_also_after_a_restart(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        first = await chain.write(b"a", seq=5)
        other = await chain.write(b"z", offset=1, seq=1, client=b"o" * 16)
        assert other.version == 2
        assert await chain.write(b"a", seq=5) == first
        await chain[1].restart()
        assert await chain.write(b"a", seq=5) == first
        with pytest.raises(StaleWrite):
            await chain.write(b"old", seq=4)
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"az")


async def test_a_change_that_is_meant_for_one_version_is_not_made_to_another(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"a")
        await chain.write(b"b")
        with pytest.raises(ChunkChanged):
            await chain.send(chain.row(kind=pb.REMOVE, only_version=1))
        assert [replica.committed() for replica in chain.replicas] == [2, 2, 2]
        removal = chain.row(kind=pb.REMOVE, only_version=2)
        assert (await chain.send(removal)).version == 3
        assert (await chain.send(removal)).version == 3, "its repeat gets its result"
        await chain.write(b"new")
        with pytest.raises(ChunkChanged):
            await chain.send(chain.row(kind=pb.REMOVE, only_version=2))
        assert await chain.read(3) == (4, b"new"), "a chunk that comes again does not begin with version 1"


async def test_a_change_for_one_version_waits_for_what_is_pending(tmp_path: Path) -> None:
    """What the head has not committed yet may be committed at the tail, which lists it."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"a")
        gate = Gate()
        chain[1].peers.after = gate
        write = asyncio.create_task(chain.write(b"b"))
        await gate.reached.wait()
        assert [replica.committed() for replica in chain.replicas] == [1, 2]
        removals = [
            asyncio.create_task(chain.send(chain.row(kind=pb.REMOVE, only_version=version))) for version in (1, 2)
        ]
        gate.open.set()
        await write
        with pytest.raises(ChunkChanged):
            await removals[0]
        assert (await removals[1]).version == 3


async def test_r6_a_new_head_knows_the_results_of_the_old_one(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        first = await chain.write(b"a", seq=5)
        await chain[1].stop()
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        assert await chain.write(b"a", seq=5) == first
        assert chain[2].committed() == chain[3].committed() == 1


async def test_r6_the_entry_of_a_pending_version_is_no_result_yet(tmp_path: Path) -> None:
    """A retry is not answered before the successor has the version."""
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[1].peers.before = gate
        first = asyncio.create_task(chain.write(b"a", seq=5))
        await gate.reached.wait()
        await cancelled(first)
        await until(lambda: chain[1].pending() == 1)
        gate.reached.clear()
        again = asyncio.create_task(chain.write(b"a", seq=5))
        await gate.reached.wait()
        assert not again.done() and chain[3].committed() == 0
        gate.open.set()
        result = await again
        assert result.version == 1, "applied once"
        assert [replica.committed() for replica in chain.replicas] == [1, 1, 1]


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_a_crash_left_pending_is_finished_first(tmp_path: Path, node: int, moment: str) -> None:
    """`before` the successor heard of it, or `after` it had committed: then the crash came before the own commit."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        gate = Gate()
        setattr(chain[node].peers, moment, gate)
        write = asyncio.create_task(chain.write(b"new", seq=9))
        await gate.reached.wait()
        await chain[node].restart()
        await cancelled(write)
        if moment == "after":
            for n in (1, 2, 3):
                assert await chain.read(n) == (2, b"new"), "a replica has shown it, so all do"
        again = await chain.write(b"new", seq=9)
        assert again.version == 2, "the same write, once (I6)"
        assert (await chain.write(b"end", offset=3, seq=10)).version == 3
        for n in (1, 2, 3):
            assert await chain.read(n) == (3, b"newend")


async def test_a_pending_version_is_finished_never_dropped_by_the_next_write(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain[1].storage.stop()  # nobody takes up what is given up
        await chain.give_up(1, chain.row(b"first", client=b"a" * 16), b"first")
        assert chain[1].pending() == 1
        chain[1].peers.before = None
        assert (await chain.write(b"!", offset=5)).version == 2
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"first!")


async def test_a_change_that_was_given_up_is_finished_without_anybody_asking(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[1].peers.before = gate
        write = asyncio.create_task(chain.write(b"left"))
        await gate.reached.wait()
        chain[1].peers.before = None
        await cancelled(write)
        await until(lambda: [replica.committed() for replica in chain.replicas] == [1, 1, 1])
        assert not chain[1].target.abandoned and not chain[1].target.current_pending


@pytest.mark.parametrize("removed", [False, True])
async def test_the_first_version_of_a_chunk_is_finished_in_a_chain_that_is_older_than_a_minute(
    tmp_path: Path, removed: bool
) -> None:
    """Then it is not version 1, and follows nothing."""
    async with chain_of(tmp_path) as chain:
        for replica in chain.replicas:
            replica.target.logical_time.observe(7)
        if removed:
            await chain.write(b"gone", seq=1)
            await chain.send(chain.row(b"", kind=pb.REMOVE, seq=2))
            for replica in chain.replicas[1:]:
                replica.target.engine.forget(CHUNK)  # as the collection of tombstones does it, which ends at the head
        gate = Gate()
        chain[1].peers.before = gate
        write = asyncio.create_task(chain.write(b"left", seq=3))
        await gate.reached.wait()
        chain[1].peers.before = None
        await cancelled(write)
        first = chain[1].pending()
        await until(lambda: [replica.committed() for replica in chain.replicas] == [first] * 3)
        assert (await chain.write(b"!", offset=4, seq=4)).version == first + 1
        assert [await chain.read(node) for node in (1, 2, 3)] == [(first + 1, b"left!")] * 3


async def test_an_error_after_the_version_was_durable_does_not_say_that_nothing_happened(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:

        async def full(method: object, request: object) -> None:
            raise ChunkNotFound("an error that no retry helps")

        chain[1].peers.before = full
        with pytest.raises(OutcomeUnknown):
            await chain.write(b"x", seq=3)
        chain[1].peers.before = None
        assert (await chain.write(b"x", seq=3)).version == 1


async def test_a_write_to_a_target_that_leaves_the_chain_is_unknown_and_kept(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = Gate()
        chain[1].peers.before = gate
        write = asyncio.create_task(chain.write(b"x"))
        await gate.reached.wait()
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        gate.open.set()
        with pytest.raises(OutcomeUnknown):
            await write
        assert (chain[1].committed(), chain[1].pending()) == (0, 1), "it may be needed if the others die"


async def test_replicas_that_differ_are_an_error_not_a_commit(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"else", node=2, version=1, client=b"q" * 16)
        with pytest.raises(OutcomeUnknown, match="has committed version 1"):
            await chain.write(b"this")
        assert chain[1].committed() == 0


async def test_a_payload_that_does_not_match_its_checksum_is_refused_before_it_is_staged(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        for offset in (0, 3):
            with pytest.raises(ChecksumMismatch):
                await chain.write(b"damaged", offset=offset, checksum=1)
        assert chain[1].record() == chain[2].record() == Record()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": pb.REPLACE},
        {"kind": 0},
        {"kind": 99},
        {"client": b"short"},
        {"client": b""},
        {"seq": 0},
        {"offset": (1 << 20) - 1},
        {"chunk_bytes": 0},
        {"chunk_bytes": 1 << 31},
    ],
)
async def test_a_write_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    async with chain_of(tmp_path, 2) as chain:
        content = b"" if wrong.get("kind") in (0, 99) else b"xx"
        with pytest.raises(InvalidArgument):
            await chain.write(content, **wrong)  # type: ignore[arg-type]
        assert chain[1].record() == Record()


@pytest.mark.parametrize("node", [1, 2, 3])
async def test_a_damaged_record_that_a_write_meets_is_noted_and_the_write_goes_on(node: int, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"before")
        flip_record(chain[node])
        row = chain.row(b"new", 2)
        version = 0
        while version != 2:
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                version = (await chain.send(row, b"new")).version
            await asyncio.sleep(0.02)
        assert chain[node].target.damaged_chunks_found == 1
        for replica in (1, 2, 3):
            assert await chain.read(replica) == (2, b"benewe")


class EndlessSleep:
    """A clock that wakes nobody."""

    monotonic, wall_ns = CLOCK.monotonic, CLOCK.wall_ns

    def __init__(self) -> None:
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await asyncio.Event().wait()


async def test_a_pause_before_the_next_attempt_ends_when_the_chain_changes(tmp_path: Path) -> None:
    """Otherwise the writes of a chain wait up to half a second longer for the member that has left it."""
    async with chain_of(tmp_path) as chain:
        chain[2].target.leased_until = -math.inf
        clock = chain[1].storage._craq._clock = EndlessSleep()
        write = asyncio.create_task(chain.write(b"new"))
        await asyncio.wait_for(clock.asleep.wait(), 20)
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        assert (await write).version == 1 and await chain.read(3) == (1, b"new")
