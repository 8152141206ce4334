"""A power cut keeps any of the pages of a log that were not synced yet. Whatever it keeps, recovery shows a prefix of
the writes, and in it all that was synced."""

import asyncio
import itertools
import shutil
from pathlib import Path

import pytest

from threefs.errors import Corrupt
from threefs.kv.table import Table

PAGE, BLOCK = 4096, 32 << 10
#: Of keys and values together with heads: some records end exactly with a page, the fourth with its block.
HEADS = 7 + 12 + 1 + 1 + 2


async def grow(table: Table, log: Path, sizes: list[int | None], first: int) -> None:
    """Write `w0`, `w1`, ... A size of None is chosen so that the record ends shortly before the next block begins."""
    for number, size in enumerate(sizes, first):
        key = b"w%d" % number
        left = BLOCK - log.stat().st_size % BLOCK
        length = size if size is not None else left - HEADS - len(key) - 3
        assert 0 < length < 16_000, "the length of a value takes two bytes"
        table.write({key: bytes([number + 1]) * length})


async def make(directory: Path, synced: list[int | None], unsynced: list[int | None]) -> tuple[Path, bytes, bytes]:
    """The name of the log, its content at the sync, and at the power cut."""
    table = await Table.open(directory / "table")
    (log,) = (directory / "table").glob("*.log")
    await grow(table, log, synced, 0)
    await table.flush()
    await asyncio.sleep(0)
    before = log.read_bytes()
    await grow(table, log, unsynced, len(synced))
    after = log.read_bytes()
    shutil.copytree(directory / "table", directory / "base")
    await table.close()
    return log, before, after


async def recovered(base: Path, target: Path, log: str, content: bytes) -> list[int]:
    """The numbers of the writes that are there after the power cut."""
    shutil.copytree(base, target)
    (target / log).write_bytes(content)
    table = await Table.open(target)
    found = [int(key[1:]) for key, _ in table.scan(b"w", b"x")]
    await table.close()
    shutil.rmtree(target)
    return sorted(found)


@pytest.mark.parametrize("room", [0, 2 * BLOCK])
async def test_any_subset_of_unsynced_pages_recovers_to_a_prefix(tmp_path: Path, room: int) -> None:
    """Images: each page that differs is as it was at the sync (behind it: room, zeros), or as it was at the cut."""
    unsynced: list[int | None] = [100, 2 * PAGE, None, 30, PAGE // 2]
    log, before, after = await make(tmp_path, [200, 15_000, 20], unsynced)
    old = before.ljust(len(after) + room, b"\0")
    new = after.ljust(len(old), b"\0")
    pages = [at for at in range(0, len(old), PAGE) if old[at : at + PAGE] != new[at : at + PAGE]]
    assert 6 <= len(pages) <= 7
    seen = set()
    for kept in itertools.product((False, True), repeat=len(pages)):
        image = bytearray(old)
        for page in itertools.compress(pages, kept):
            image[page : page + PAGE] = new[page : page + PAGE]
        found = await recovered(tmp_path / "base", tmp_path / "cut", log.name, bytes(image))
        assert found == list(range(len(found))), f"kept {kept}: no prefix, {found}"
        assert len(found) >= 3, f"kept {kept}: what was synced is gone, {found}"
        seen.add(len(found))
    assert {3, 8} <= seen and len(seen) > 3, "the cuts did not differ"


@pytest.mark.parametrize("where", ["pages", "record"])
async def test_a_gap_in_what_was_synced_is_damage(tmp_path: Path, where: str) -> None:
    """Zeros up to the end of a block, where something lies that is told to have been flushed."""
    log, before, after = await make(tmp_path, [200, 12_000, 8000, None, 20, 300], [40, 50])
    assert len(after) > len(before) > BLOCK
    image = bytearray(after)
    gone = 300 if where == "record" else 2 * PAGE
    image[gone:BLOCK] = bytes(BLOCK - gone)
    with pytest.raises(Corrupt, match=r"gap|damaged"):
        await recovered(tmp_path / "base", tmp_path / "cut", log.name, bytes(image))


async def test_a_record_that_is_missing_between_whole_ones_is_a_gap(tmp_path: Path) -> None:
    """As if a page that holds exactly one record had been cut out: nothing but the numbers of the changes tells."""
    log, before, after = await make(tmp_path, [200], [100, 100, 100])
    record = (len(after) - len(before)) // 3
    image = after[: len(before) + record] + after[len(before) + 2 * record :]
    assert await recovered(tmp_path / "base", tmp_path / "cut", log.name, image) == [0, 1]
