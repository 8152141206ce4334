"""A bit that turns over on the disk is noticed, wherever it lies: nothing wrong is served, nothing lost in silence."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import decode, encode

from tests.harness.bit_flips import Sample, build, flip, table_after_flip
from tests.harness.chunk_engine import opened
from threefs.errors import Corrupt, CorruptChunk

_DATA_BITS, _RECORD_BITS, _TABLE_BITS = 5000, 3000, 1000  # places that are tried
_SEED = 7


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    directory = tmp_path_factory.mktemp("flips")
    return asyncio.run(build(directory, random.Random(_SEED)))


def test_no_turned_bit_of_content_is_served(sample: Sample) -> None:
    """All of it is detected: every bit of live content is covered by a checksum."""

    async def main() -> int:
        dice = random.Random(_SEED)
        detected = 0
        async with opened(sample.used) as engine:
            for turn in range(_DATA_BITS):
                version, content = dice.choice(sample.contents)
                assert version.block is not None
                at = dice.randrange(version.length)
                begin = dice.randrange(max(0, at - 5000), at + 1)
                into = memoryview(bytearray(min(version.length - begin, at - begin + dice.randrange(1, 5000))))
                place = ((version.block.slot << version.block.bits) + at) * 8 + dice.randrange(8)
                with _flipped(sample.data_file(version.block), place):
                    try:
                        if turn % 2 or engine.read(version, begin, into) is None:
                            await engine.read_cold(version, begin, into, past_cache=turn % 4 == 1)
                    except CorruptChunk:
                        detected += 1
                    else:
                        raise AssertionError(
                            f"byte {at} of {version} was served: {into == content[begin:][: len(into)]}"
                        )
        return detected

    assert asyncio.run(main()) == _DATA_BITS


def test_no_turned_bit_of_a_record_is_taken(sample: Sample) -> None:
    dice = random.Random(_SEED)
    values = [(chunk, encode(chunk, record)) for chunk, record in sample.records.items()]
    for _ in range(_RECORD_BITS):
        chunk, value = dice.choice(values)
        data = bytearray(value)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        with pytest.raises(Corrupt):
            decode(chunk, bytes(data))


@pytest.mark.parametrize(("state", "suffix"), [("crashed", ".log"), ("closed", ".sst")])
def test_no_turned_bit_of_a_table_changes_it_in_silence(
    sample: Sample, state: str, suffix: str, tmp_path: Path
) -> None:
    """The table refuses to open or to be read, or shows every row as it was acknowledged.

    The latter may be where nothing is: space between records, parts of a sorted file that only serve statistics, and
    the mark at the end of the log, which names no row.
    """
    dice = random.Random(_SEED)
    records = getattr(sample, state) / "records"
    files = [path for path in records.iterdir() if path.suffix == suffix and path.stat().st_size]
    assert files

    async def main() -> tuple[int, int]:
        detected = harmless = 0
        for _ in range(_TABLE_BITS // 2):
            file = dice.choice(files)
            bit = dice.randrange(file.stat().st_size * 8)
            rows = await table_after_flip(records, file.name, bit, tmp_path / "place")
            assert rows is None or rows == sample.pairs, f"bit {bit} of {file.name} changes rows in silence"
            detected += rows is None
            harmless += rows is not None
        return detected, harmless

    detected, harmless = asyncio.run(main())
    assert detected > 9 * harmless, (detected, harmless)


def test_nothing_is_found_where_nothing_was_turned(sample: Sample) -> None:
    """Else the tests above would show nothing."""

    async def main() -> None:
        async with opened(sample.used) as engine:
            for version, content in sample.contents:
                into = memoryview(bytearray(version.length))
                await engine.read_cold(version, 0, into, past_cache=True)
                assert into == content

    asyncio.run(main())
    assert len(sample.contents) > 8
    assert any(record.pending for record in sample.records.values())
    assert any(record.blobs for record in sample.records.values())
    assert any(record.entries for record in sample.records.values())
    assert any(record.committed and record.committed.removed for record in sample.records.values())


@contextmanager
def _flipped(path: Path, bit: int) -> Iterator[None]:
    flip(path, bit)
    try:
        yield
    finally:
        flip(path, bit)
