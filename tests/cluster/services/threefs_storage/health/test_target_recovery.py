"""A target whose disk is full leaves its chain, and comes back when there is room."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.harness.chain_harness import OFFLINE, SERVING, SYNCING, chain_of, until
from threefs.errors import NoSpace
from threefs.routing import LocalState


def fill(replica: Any) -> None:
    """No room for anything."""
    engine = replica.target.engine
    space = engine.space

    def none_left() -> Any:
        return dataclasses.replace(space(), free_bytes=0)

    async def refuse(*rest: Any, **more: Any) -> None:
        raise NoSpace("full")

    replica.before = (engine.space, engine._files.take)
    engine.space, engine._files.take = none_left, refuse


def free(replica: Any) -> None:
    engine = replica.target.engine
    engine.space, engine._files.take = replica.before


@pytest.mark.parametrize("node", [2, 3])
async def test_a_full_replica_leaves_and_comes_back_by_resync(node: int, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"before")
        fill(chain[node])
        target = chain[node].target
        write = asyncio.create_task(chain.write(b"x" * 70_000, seq=7))
        await until(lambda: target.leaving)
        assert target.local_state is LocalState.OFFLINE and chain[node].targets.reports()[0].read_only
        others = [(n, SERVING) for n in (1, 2, 3) if n != node]
        chain.change(*others, (node, OFFLINE))
        await write
        free(chain[node])
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert not target.full
        target.leased_until = float("inf")
        chain.change(*others, (node, SYNCING))
        await until(lambda: target.synced_in_version == chain.version)
        chain.change(*others, (node, SERVING))
        assert await chain.read(node) == (2, b"x" * 70_000)


async def test_the_only_one_that_serves_stays_for_reads(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"before")
        fill(chain[1])
        with pytest.raises(NoSpace):
            await chain.write(b"x" * 70_000)
        assert await chain.read(1) == (1, b"before") and not chain[1].target.leaving
        free(chain[1])
        assert (await chain.write(b"x" * 70_000)).version == 2
