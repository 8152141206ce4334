"""What a target knows of its chain, and what is always true of it."""

import asyncio
from pathlib import Path

import pytest
from threefs_storage.target import Target

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, Gate, chain_of
from tests.harness.clocks import SteppedClock
from threefs.errors import ChainChanged


async def test_a_chain_change_makes_every_pending_version_one_of_before(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        target = chain[1].target
        target.current_pending.add(CHUNK)
        target.abandoned.add(CHUNK)
        target.pending_recovered.set()
        target.apply_chain(target.chain)
        assert not target.current_pending and not target.abandoned and not target.pending_recovered.is_set()


async def test_two_changes_at_once_give_a_wait_up_once(tmp_path: Path) -> None:
    """The second comes in before the one who waits could run."""
    async with chain_of(tmp_path, 3) as chain:
        target = chain[1].target
        waiting = asyncio.create_task(target.cancel_on_chain_change(asyncio.sleep(60)))
        await asyncio.sleep(0.01)
        for _ in range(3):  # until the timeout has gone off, and its task has not run
            if waiting.done():
                break
            chain.change((1, SERVING), (2, SERVING), (3, SERVING), learned_by=[1])
            await asyncio.sleep(0)
        with pytest.raises(ChainChanged):
            await waiting


async def test_the_invariants_hold_while_changes_are_under_way(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 3) as chain:
        gate = chain[1].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"x"))
        await gate.reached.wait()
        for members in (((1, SERVING), (2, SERVING), (3, SYNCING)), ((1, SERVING), (2, SERVING), (3, OFFLINE))):
            chain.change(*members)
            for replica in chain.replicas:
                replica.target.check_invariants()
        gate.open.set()
        await write


async def test_a_target_that_leaves_holds_no_lease(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        target = chain[1].target
        target.leave()
        target.check_invariants()
        target.leased_until = 1e12
        with pytest.raises(AssertionError, match="holds no lease"):
            target.check_invariants()
        target.leaving = False


async def test_chain_versions_only_rise(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        before = chain[1].target.chain
        chain.change((1, SERVING), (2, OFFLINE))
        with pytest.raises(AssertionError, match="I5"):
            chain[1].target.apply_chain(before)


async def test_the_time_since_the_last_scrub_pass_is_counted(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        kept, clock = chain[1].target, SteppedClock()
        target = Target(kept.target_id, kept.engine, kept.chain, clock)
        clock.advance(3600)
        assert target.unscrubbed_s == 3600 and target.scrub_passes == 0
        target.note_scrub_pass()
        clock.advance(5)
        assert target.unscrubbed_s == 5 and target.scrub_passes == 1
