"""Pending versions that nobody drives."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, Gate, TestChain, cancelled, chain_of, until
from threefs.ids import ChunkId


async def left_at_the_head(chain: TestChain, count: int = 1) -> None:
    for n in range(count):
        await chain.give_up(1, chain.row(b"x", chunk=ChunkId(7, n)), b"x")
    await chain[1].stop()


async def test_after_a_start_all_of_them_are_finished(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await left_at_the_head(chain, 5)
        await chain[1].restart()
        await chain[1].target.pending_recovered.wait()
        assert not chain[1].target.engine.pending()
        assert [chain[2].committed(ChunkId(7, n)) for n in range(5)] == [1] * 5


async def test_it_tries_again_until_the_successor_is_there(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await left_at_the_head(chain)
        await chain[2].stop()
        with capture_logs() as logs:
            await chain[1].restart()
            await until(lambda: len(chain[1].target.locks) > 0)
            assert not chain[1].target.pending_recovered.is_set()
            await chain[2].restart()
            await chain[1].target.pending_recovered.wait()
        assert chain[2].committed() == 1
        assert all(log["log_level"] == "info" for log in logs if "pending" in log["event"])


async def test_a_first_version_is_finished_whatever_its_number(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain[1].target.logical_time.observe(60)  # minutes: the first version of a chunk is above all of before
        await chain.give_up(1, chain.row(b"x"), b"x")
        assert chain[1].pending() == (60 << 20) + 1
        chain[1].peers.before = None
        async with asyncio.timeout(20):
            await until(lambda: not chain[1].pending())
        assert chain[1].committed() == chain[2].committed() == (60 << 20) + 1


async def test_after_a_chain_change_what_was_under_way_is_finished(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = chain[2].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"x"))
        await gate.reached.wait()
        await cancelled(write)
        chain[2].peers.before = None
        assert chain[2].target.pending_recovered.is_set(), "nothing is left of an older chain version"
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert not chain[2].target.pending_recovered.is_set()
        await chain[2].target.pending_recovered.wait()
        assert chain[2].committed() == 1 and chain[3].committed() == 0


@pytest.mark.parametrize("state", [OFFLINE, SYNCING])
async def test_a_target_that_does_not_serve_finishes_nothing(tmp_path: Path, state: object) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await left_at_the_head(chain)
        chain.members = [(2, SERVING), (1, state)]  # type: ignore[list-item]
        chain.version += 1
        await chain[1].restart(chain.routing())
        await asyncio.sleep(0.02)
        assert not chain[1].peers.sent and not chain[1].target.pending_recovered.is_set()
        assert chain[1].committed() == 0
        assert chain[1].pending() == 1, "its bytes may be the only good ones"


async def test_an_unexpected_failure_does_not_end_it(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await left_at_the_head(chain)
        failures = 0

        async def broken(method: object, request: object) -> None:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise ZeroDivisionError

        await chain[1].bind()
        chain[1].peers.before = broken
        with capture_logs() as logs:
            await chain[1].begin(chain.routing())
            await chain[1].target.pending_recovered.wait()
        assert chain[2].committed(CHUNK) == 1
        assert any(log["log_level"] == "error" for log in logs)


async def test_many_are_finished_beside_each_other(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await left_at_the_head(chain, 8)
        await chain[1].bind()
        hold = chain[1].peers.before = Gate()
        await chain[1].begin(chain.routing())
        await until(lambda: len(chain[1].target.locks) == 8)
        hold.open.set()
        await chain[1].target.pending_recovered.wait()
