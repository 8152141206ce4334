"""A full head gives way to a replica that has room; a full chain says so."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.health.peer_room import PeerRoom

from tests.harness.chain_harness import CHUNK_BYTES, OFFLINE, SERVING, SYNCING, TestChain, chain_of, refuse, until
from tests.harness.small_disk import small_disk
from threefs.errors import NoSpace, NotServing, OutcomeUnknown, Unavailable
from threefs.ids import ChunkId
from threefs.rpc.methods import SPACE_INFO
from threefs.wire import storage_pb2 as pb

CONTENT = os.urandom(CHUNK_BYTES)
_SMALL = "48m"


async def fill(chain: TestChain) -> int:
    """Write until something is refused: the number of chunks that were written."""
    for number in range(200):
        try:
            await chain.write(CONTENT, chunk=ChunkId(7, number))
        except BaseException:
            return number
    raise AssertionError("nothing was refused")


async def refused(chain: TestChain) -> BaseException:
    try:
        await chain.write(CONTENT, chunk=ChunkId(8, 0))
    except (NoSpace, NotServing, Unavailable) as error:
        return error
    raise AssertionError("nothing was refused")


async def test_a_full_head_gives_way_and_returns_behind_the_others(tmp_path: Path) -> None:
    with small_disk(tmp_path / "node-1", _SMALL):
        async with chain_of(tmp_path) as chain:
            written = await fill(chain)
            assert written > 10 and chain[1].target.leaving, "the head has left its chain"
            chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
            await chain.write(CONTENT, chunk=ChunkId(7, written))
            assert await chain.read(3, ChunkId(7, written)) == (1, CONTENT)


async def test_a_head_whose_disk_has_less_room_than_it_says_gives_way(tmp_path: Path) -> None:
    """A quota, for example. All its writes went ahead, so each of them failed with an unknown outcome, for ever."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"old")  # opens a connection, so that the next change goes ahead

        async def full(*_: object, **more: object) -> None:
            raise NoSpace("the quota is used up")

        chain[1].target.engine.stage = full  # type: ignore[method-assign, assignment]
        row = chain.row(b"new")
        with pytest.raises(OutcomeUnknown, match="quota"):
            await chain.send(row, b"new")
        with pytest.raises(NotServing, match="gives way"):
            await chain.send(row, b"new")
        assert chain[1].target.leaving
        chain.change((2, SERVING), (1, OFFLINE))
        row.target, row.chain_version = chain[2].target_id, chain.version
        assert (await chain.send(row, b"new")).version == 2


async def test_a_chain_that_is_full_says_so_in_words_of_its_user(tmp_path: Path) -> None:
    with small_disk(tmp_path / "node-1", _SMALL), small_disk(tmp_path / "node-2", _SMALL):
        async with chain_of(tmp_path, 2) as chain:
            await fill(chain)
            error = await refused(chain)
            assert isinstance(error, NoSpace), error
            assert "chain 1 (node 1, node 2)" in error.message and "remove files or add disks" in error.message
            assert str(tmp_path) not in error.message
            assert not chain[1].target.leaving and not chain[2].target.leaving, "and it keeps its replicas"


async def test_a_cut_makes_room_before_it_is_answered(tmp_path: Path) -> None:
    """A removed file keeps its chunks for a while, because somebody may read it. A cut one does not."""
    with small_disk(tmp_path / "node-1", _SMALL), small_disk(tmp_path / "node-2", _SMALL):
        async with chain_of(tmp_path, 2) as chain:
            written = await fill(chain)
            assert isinstance(await refused(chain), NoSpace)
            for number in range(written):
                row = chain.row(kind=pb.REMOVE, chunk=ChunkId(7, number), chunk_bytes=0)
                await chain.send(row, b"", timeout_s=20.0)
            assert await fill(chain) > 10


@pytest.mark.parametrize("state", [SYNCING, SERVING])
async def test_a_write_waits_for_a_replica_with_room_that_will_serve(state: Any, tmp_path: Path) -> None:
    """One that syncs, or one that does not answer now."""
    with small_disk(tmp_path / "node-1", _SMALL):
        async with chain_of(tmp_path, 2) as chain:
            chain.change((1, SERVING), (2, OFFLINE))
            await fill(chain)
            assert isinstance(await refused(chain), NoSpace)
            if state is SERVING:
                chain[1].peers.before = refuse
            else:
                chain[1].peers.before = _only_space
            chain.change((1, SERVING), (2, state))
            assert isinstance(await refused(chain), Unavailable) and not chain[1].target.leaving
            chain.change((1, SERVING), (2, OFFLINE))
            await until(lambda: not len(chain[1].target.locks))


async def _only_space(method: Any, request: Any) -> None:
    if method is not SPACE_INFO:
        await refuse(method, request)


async def test_many_writes_ask_once(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 3) as chain:
        room = chain[1].storage._room
        found = await asyncio.gather(*(room.ask(chain[1].target, CHUNK_BYTES) for _ in range(5)))
        assert set(found) == {PeerRoom.TAKES_OVER}
        assert chain[1].peers.count(SPACE_INFO) == 2, "each of the others"
        assert await room.ask(chain[1].target, 1 << 60) is PeerRoom.TAKES_OVER, "an answer counts for a moment"
