"""Small changes lie in blobs, and a later change keeps them. They are damaged at the only member that has the later
one; members that had left before still have them."""

from pathlib import Path

from threefs_storage.engine.overlay import OverlayLimits, range_of_blobs

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, Replica, chain_of, until

CONTENT = b"what was written" * 5000


def flip_blob(replica: Replica, content: bytes) -> None:
    table = replica.target.engine._store._table
    [key] = [key for key, value in table.scan(*range_of_blobs(CHUNK)) if value == content]
    table.write({key: bytes([content[0] ^ 4]) + content[1:]})


async def test_an_older_copy_has_the_small_changes_that_a_later_one_has_kept(tmp_path: Path) -> None:
    """Dense seed 7038 has found it: the chunk counted as lost."""
    async with chain_of(tmp_path, 2, overlay=OverlayLimits()) as chain:
        await chain.write(CONTENT)
        await chain.write(b"first", 100)
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"second", 200)
        flip_blob(chain[1], b"first")
        chain[1].target.note_damage(CHUNK)
        await until(lambda: chain[1].target.repaired_chunks == 1)
        content = CONTENT[:100] + b"first" + CONTENT[105:200] + b"second" + CONTENT[206:]
        assert await chain.read(1) == (3, content)
