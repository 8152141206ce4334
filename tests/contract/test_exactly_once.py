"""R6 on a real chain: writes that come late or again, to chunks that many have written."""

from pathlib import Path

import pytest
from threefs_storage.engine import exactly_once
from threefs_storage.engine.exactly_once import WRITE_LIFETIME_MINUTES

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, chain_of, until
from threefs.errors import ResultDropped, ResultForgotten, StaleFence
from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK
from threefs.wire import storage_pb2 as pb


def other(number: int) -> bytes:
    return b"other" + number.to_bytes(11, "big")


async def test_r6_a_first_attempt_that_comes_after_its_repeat_and_many_other_writers_is_not_applied(
    tmp_path: Path,
) -> None:
    async with chain_of(tmp_path, 2) as chain:
        late = chain.row(b"OLD", seq=1)
        again = chain.row(b"OLD", seq=1, again=True)
        first = await chain.send(again, b"OLD")
        for number in range(40):
            await chain.write(b"NEW", client=other(number), seq=1, known_version=chain[1].committed())
        assert await chain.send(late, b"OLD") == first
        assert await chain.read(2) == (41, b"NEW")


async def test_r6_a_write_to_a_chunk_of_many_writers_whose_first_attempt_is_lost(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        for number in range(40):
            await chain.write(b"x", client=other(number), seq=1)
        assert (await chain.write(b"new", seq=1, again=True)).version == 41


async def test_r6_where_results_are_forgotten_a_write_is_made_anew_or_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "MAX_ENTRIES", 33)
    async with chain_of(tmp_path, 2) as chain:
        late = chain.row(b"OLD", seq=1)
        await chain.send(late, b"OLD")
        for number in range(40):
            await chain.write(b"NEW", client=other(number), seq=1, known_version=chain[1].committed())
        with pytest.raises(ResultForgotten):
            await chain.send(late, b"OLD")
        late.again = True
        with pytest.raises(ResultDropped, match="may have been dropped"):
            await chain.send(late, b"OLD")
        assert chain[1].committed() == 41
        anew = chain.row(b"LST", seq=2, known_version=41)
        assert (await chain.send(anew, b"LST")).version == 42
        assert chain[1].state() == chain[2].state()
        chain.change((2, SERVING), (1, OFFLINE))
        with pytest.raises(ResultForgotten):
            await chain.send(chain.row(b"OLD", client=other(0), seq=1), b"OLD")


async def test_r6_a_fence_does_not_deny_a_write_whose_result_may_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StaleFence says that a write was not applied. Its client would make it anew, over what others have written."""
    monkeypatch.setattr(exactly_once, "MAX_ENTRIES", 33)
    async with chain_of(tmp_path, 2) as chain:
        row = chain.row(b"OLD", seq=1, fence=1)
        await chain.send(row, b"OLD")
        for number in range(40):
            await chain.write(b"NEW", client=other(number), seq=1, known_version=chain[1].committed())
        fence = ChunkId(CHUNK.inode, FENCE_CHUNK)
        await chain.write(b"", chunk=fence, kind=pb.EXTEND, length=1, client=other(99), chunk_bytes=64 << 20)
        row.again = True
        with pytest.raises(ResultDropped):
            await chain.send(row, b"OLD")
        with pytest.raises(StaleFence):
            await chain.write(b"LST", seq=2, known_version=41, fence=1)


async def test_r6_what_is_forgotten_travels_with_a_resync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "MAX_ENTRIES", 33)
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        for number in range(40):
            await chain.write(b"NEW", client=other(number), seq=1, known_version=chain[1].committed())
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        assert chain[1].record().entries == chain[2].record().entries
        assert chain[1].record().forgotten == chain[2].record().forgotten == (7, 0)


async def test_r6_a_syncing_target_keeps_no_results_of_before_an_old_removal(tmp_path: Path) -> None:
    """It kept them, and its predecessor did not: so every resync sent such a chunk once more."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"old", client=other(1))
        await chain.write(b"", client=other(2), kind=pb.REMOVE)
        chain.change((1, SERVING), (2, SYNCING))
        chain[1].target.logical_time.observe(chain[1].target.logical_time.now + 2 * WRITE_LIFETIME_MINUTES)
        await chain.write(b"new", client=other(3))
        assert [entry.client for entry in chain[1].record().entries] == [other(3)]
        assert chain[1].state() == chain[2].state()
