"""Removals are forgotten when they are of no use any more, and nothing comes back for it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.exactly_once import WRITE_LIFETIME_MINUTES

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    TestChain,
    chain_of,
    flip_record,
    refuse,
    until,
)
from tests.harness.clocks import SteppedClock
from threefs.env.clock import CLOCK
from threefs.errors import ThreefsError, Unavailable
from threefs.rpc.methods import WRITE
from threefs.wire import storage_pb2 as pb

LATER = WRITE_LIFETIME_MINUTES + 1


async def removed(chain: TestChain) -> None:
    await chain.write(b"content")
    await chain.send(chain.row(kind=pb.REMOVE))


def known(chain: TestChain) -> list[int]:
    """The versions of the chunk, of which a record exists."""
    return [replica.committed() for replica in chain.replicas]


async def turn(chain: TestChain, node: int = 1, *, minutes: int = LATER) -> int:
    target = chain[node].target
    target.logical_time.observe(minutes)
    return await chain[node].storage._tombstone_collector.collect_page(target)


async def test_an_old_removal_is_forgotten_by_all(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await removed(chain)
        assert await turn(chain, minutes=WRITE_LIFETIME_MINUTES) == 0 and known(chain) == [2, 2, 2]
        assert await turn(chain, 2) == 0, "only the head begins"
        assert await turn(chain) == 1
        assert [replica.target.engine.inventory(None, 10) for replica in chain.replicas] == [[], [], []]


async def test_versions_do_not_begin_anew(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await removed(chain)
        await turn(chain)
        version = (await chain.write(b"again")).version
        assert version == (LATER << 20) + 1
        assert (await chain.write(b"AGAIN")).version == version + 1
        assert [await chain.read(node) for node in (1, 2, 3)] == [(version + 1, b"AGAIN")] * 3
        chain.change((3, SERVING), (1, OFFLINE), (2, OFFLINE))
        other = chain.row(b"x", chunk=CHUNK._replace(number=9))
        assert (await chain.send(other, b"x")).version > LATER << 20, "whoever becomes the head knows the time"


@pytest.mark.parametrize("how", ["a member is out", "it is not removed", "a write is on its way", "it is young"])
async def test_what_is_of_use_is_kept(how: str, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        if how == "it is young":
            chain[1].target.logical_time.observe(LATER)
        await removed(chain)
        if how == "a member is out":
            chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        elif how == "it is not removed":
            await chain.write(b"again")
        elif how == "a write is on its way":
            await chain.give_up(1, chain.row(b"again"), b"again")
        before = known(chain)
        assert await turn(chain) == 0 and known(chain) == before
        chain[1].peers.before = None


async def test_one_that_was_out_and_has_the_chunk_does_not_bring_it_back(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"content")
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.send(chain.row(kind=pb.REMOVE))
        assert await turn(chain) == 0
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        assert chain[2].target.logical_time.now >= LATER, "it learns the time before it serves"
        chain.change((1, SERVING), (2, SERVING))
        assert await turn(chain) == 1 and known(chain) == [0, 0]


@pytest.mark.parametrize("who", [1, 2])
async def test_a_collection_that_came_half_way_holds_up_nothing(who: int, tmp_path: Path) -> None:
    """Those behind have forgotten, those before have not: writes go on, and it is done later."""
    async with chain_of(tmp_path) as chain:
        await removed(chain)

        async def lost(method: Any, request: Any) -> None:
            if method is WRITE:
                raise Unavailable("the answer is lost")

        chain[who].peers.after = lost
        with pytest.raises(ThreefsError):
            await turn(chain)
        chain[who].peers.after = None
        assert known(chain) == ([2, 0, 0] if who == 1 else [2, 2, 0])
        assert (await chain.write(b"again")).version == 3
        assert [await chain.read(node) for node in (1, 2, 3)] == [(3, b"again")] * 3
        assert chain[1].state() == chain[2].state() == chain[3].state(), "results too"
        await chain.send(chain.row(kind=pb.REMOVE))
        assert await turn(chain, minutes=3 * LATER) == 1 and known(chain) == [0, 0, 0]


async def test_one_that_is_refused_holds_up_no_other_one(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        others = [CHUNK._replace(number=number) for number in (1, 2)]
        for chunk in (CHUNK, *others):
            await chain.write(b"content", chunk=chunk)
            await chain.send(chain.row(kind=pb.REMOVE, chunk=chunk))
        flip_record(chain[2])
        with pytest.raises(Unavailable, match="damaged"):
            await turn(chain)
        assert [replica.committed(chunk) for replica in chain.replicas for chunk in others] == [0] * 4
        assert chain[2].target.damaged_chunks_found == 1
        await until(lambda: chain[2].target.repaired_chunks == 1)
        assert await turn(chain) == 1 and known(chain) == [0, 0]


async def test_one_that_is_never_answered_holds_up_those_behind_it_for_one_turn(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        others = [CHUNK._replace(number=number) for number in (1, 2)]
        for chunk in (CHUNK, *others):
            await chain.write(b"content", chunk=chunk)
            await chain.send(chain.row(kind=pb.REMOVE, chunk=chunk))
        clock = chain[1].storage._tombstone_collector._clock = SteppedClock(CLOCK.monotonic())

        async def away(method: Any, request: Any) -> None:
            if request.writes[0].chunk.index == CHUNK.number:
                clock.advance(5.0)
                raise Unavailable("no answer")

        chain[1].peers.before = away
        with pytest.raises(Unavailable):
            await turn(chain)
        assert await turn(chain) == 2
        assert [replica.committed(chunk) for replica in chain.replicas for chunk in others] == [0] * 4
        chain[1].peers.before = None
        assert await turn(chain) == 1 and known(chain) == [0, 0]


async def test_a_successor_that_is_away_is_not_asked_for_each_of_them(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        for number in range(3):
            await chain.send(chain.row(kind=pb.REMOVE, chunk=CHUNK._replace(number=number)))
        clock = chain[1].storage._tombstone_collector._clock = SteppedClock(CLOCK.monotonic())
        asked: list[Any] = []

        async def away(method: Any, request: Any) -> None:
            asked.append(request)
            clock.advance(3.0)
            raise Unavailable("cut off")

        chain[1].peers.before = away
        with pytest.raises(Unavailable):
            await turn(chain)
        assert len(asked) == 2
        chain[1].peers.before = None


async def test_half_way_a_new_head_goes_on_from_what_it_knows(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await removed(chain)
        chain[1].peers.after = refuse
        with pytest.raises(ThreefsError):
            await turn(chain)
        chain[1].peers.after = None
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        version = (await chain.write(b"again")).version
        assert version > 2
        chain.change((2, SERVING), (3, SERVING), (1, SYNCING))
        await until(lambda: chain[1].target.synced_in_version == chain.version)
        assert known(chain) == [version] * 3


async def test_the_time_of_the_chain_outlives_the_process(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain[1].target.logical_time.observe(77)
        chain[1].target.save_logical_time()
        await chain[1].restart()
        assert chain[1].target.logical_time.now == 77


@pytest.mark.parametrize("who", [1, 2])
async def test_versions_do_not_begin_anew_after_a_restart(who: int, tmp_path: Path) -> None:
    """A member that had just returned learned the time with the collection, and ended before it stored it."""
    async with chain_of(tmp_path, 2) as chain:
        await removed(chain)
        assert await turn(chain) == 1 and known(chain) == [0, 0]
        await chain[who].restart()
        assert chain[who].target.first_version > 2


async def test_versions_do_not_begin_anew_at_a_new_disk_that_has_just_been_filled(tmp_path: Path) -> None:
    """It learned the time at the end of its resync, and ended before it stored it. All others are lost."""
    async with chain_of(tmp_path, 2) as chain:
        await removed(chain)
        assert await turn(chain) == 1 and known(chain) == [0, 0]
        await chain[2].stop()
        shutil.rmtree(chain[2].directory / f"target-{chain[2].target_id}")
        chain.change((1, SERVING), (2, OFFLINE), learned_by=[1])
        await chain[2].restart(chain.routing())
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        await chain[2].restart()
        assert chain[2].target.first_version > 2
