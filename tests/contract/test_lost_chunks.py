"""Chunks that are lost are whole again when a member returns that has their bytes."""

from pathlib import Path

import pytest
from threefs_storage.health import chunk_repair

from tests.cluster.services.threefs_storage.health.test_chunk_repair import CONTENT, spoil
from tests.harness.chain_harness import OFFLINE, SERVING, chain_of, until
from threefs.ids import ChunkId


@pytest.mark.parametrize("found", [1, 2, 3])
async def test_chunks_that_stay_lost_keep_no_other_one_from_its_turn(
    found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same chunks were tried in each round: with more lost ones than a round has, the others were never tried."""
    monkeypatch.setattr(chunk_repair, "_MAX_LOST", 1)
    chunks = [ChunkId(7, number) for number in (1, 2, 3)]
    async with chain_of(tmp_path, 2) as chain:
        for chunk in chunks:
            await chain.write(CONTENT, chunk=chunk)
        chain.change((1, SERVING), (2, OFFLINE))
        for chunk in chunks:
            if chunk.number != found:
                await chain.write(CONTENT[::-1], chunk=chunk)
        await chain[2].stop()
        for chunk in chunks:
            spoil(chain[1], chunk)
            chain[1].target.note_damage(chunk)
        await until(lambda: set(chunks) == chain[1].target.engine.lost_chunks)
        await chain[2].restart(chain.routing())
        await until(lambda: chain[1].target.repaired_chunks == 1)
        assert await chain.read(1, ChunkId(7, found)) == (1, CONTENT)
        assert chain[1].target.engine.lost_chunks == {chunk for chunk in chunks if chunk.number != found}
