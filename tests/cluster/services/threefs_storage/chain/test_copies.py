"""Copies of a chunk at other members of the chain."""

from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import copies as copies_module
from threefs_storage.chain.copies import Copies
from threefs_storage.engine.chunk_record import Version

from tests.cluster.services.threefs_storage.health.test_chunk_repair import CONTENT, flip_content
from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    WAITING,
    Gate,
    TestChain,
    chain_of,
    flip_record,
    refuse,
    until,
)
from threefs.errors import Corrupt, NotServing, Unavailable
from threefs.rpc.methods import FETCH_CHUNK


def copies(chain: TestChain, node: int = 1) -> tuple[Copies, Any, Version]:
    replica = chain[node]
    committed = replica.record().committed
    assert committed is not None
    return replica.storage._copies, replica.target, committed


@pytest.mark.parametrize("state", [SERVING, WAITING, OFFLINE])
async def test_content_comes_from_a_member_in_any_state(state: Any, tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        chain.change((1, SERVING), (2, state), learned_by=[1])  # the other one does not even know
        ask, target, version = copies(chain)
        assert await ask.content(target, CHUNK, version) == bytearray(CONTENT)


async def test_only_that_very_content_counts(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        ask, target, version = copies(chain)
        chain.change((2, SERVING), (1, OFFLINE))
        await chain.write(b"!")
        assert await ask.content(target, CHUNK, version) is None


async def test_a_damaged_copy_does_not_count_and_the_next_one_is_asked(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(CONTENT)
        ask, target, version = copies(chain)
        await flip_content(chain[2])
        assert await ask.content(target, CHUNK, version) == bytearray(CONTENT)
        assert chain[2].target.damaged_chunks_found == 1, "and it is noted there"


async def test_a_serving_member_that_does_not_answer_may_have_it(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        ask, target, version = copies(chain)
        chain[1].peers.before = refuse
        with pytest.raises(Unavailable, match="may have"):
            await ask.content(target, CHUNK, version)
        chain.change((1, SERVING), (2, OFFLINE))
        assert await ask.content(target, CHUNK, version) is None


@pytest.mark.parametrize("state", [SERVING, OFFLINE])
async def test_a_member_that_has_it_and_cannot_read_it_is_waited_for_only_if_it_serves(
    state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is in memory, and its disk stands still. A resync waited for that disk for ever."""
    monkeypatch.setattr(copies_module, "_FETCH_S", 0.2)
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        chain.change((1, SERVING), (2, state))
        ask, target, version = copies(chain)
        hold = chain[2].disk.hold_read = Gate()
        try:
            if state is SERVING:
                with pytest.raises(Unavailable, match="may have"):
                    await ask.content(target, CHUNK, version)
            else:
                assert await ask.content(target, CHUNK, version) is None
            assert hold.reached.is_set()
        finally:
            hold.open.set()


async def test_a_committed_version_is_answered_only_by_a_serving_member_that_can_read_its_record(
    tmp_path: Path,
) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        ask, target, version = copies(chain)
        found = await ask.record(target, chain[2].target_id, CHUNK, newest=False)
        assert found is not None and (found.version, found.checksum) == (1, version.checksum)
        flip_record(chain[2])
        with pytest.raises(Corrupt):
            await ask.record(target, chain[2].target_id, CHUNK, newest=False)
        chain.change((1, SERVING), (2, OFFLINE))
        with pytest.raises(NotServing):
            await ask.record(target, chain[2].target_id, CHUNK, newest=False)


async def test_a_chain_that_changes_while_others_are_asked_loses_no_chunk(tmp_path: Path) -> None:
    """The one that has the bytes returned at that moment, which counted as if it did not answer: the chunk was lost, in
    a version that replaced the good one there."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        chain.change((1, SERVING), (2, OFFLINE))
        await flip_content(chain[1])
        flip_record(chain[1])
        chain[1].peers.before = asking = Gate(FETCH_CHUNK)
        with pytest.raises(Corrupt):
            await chain.read(1)
        await asking.reached.wait()
        chain.change((1, SERVING), (2, WAITING))
        asking.open.set()
        await until(lambda: not chain[1].target.damaged)
        assert await chain.read(1) == (1, CONTENT)
