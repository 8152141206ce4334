import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from threefs.errors import Corrupt
from threefs.kv.table import Table
from threefs.kv.wal import cut_torn_tail, odd_header, torn_at

WRITES = [100, 20_000, 5, 90_000, 300]  # bytes of the values; some records span blocks, one of them three
BLOCK = 32 << 10


def log_with_places(directory: Path, flush: bool, writes: Sequence[int] = WRITES) -> tuple[bytes, list[int]]:
    """A log, and where each of its writes begins and the last ends."""

    async def main() -> tuple[bytes, list[int]]:
        table = await Table.open(directory)
        (path,) = directory.glob("*.log")
        places = [path.stat().st_size]
        for number, size in enumerate(writes):
            table.write({b"%d" % number: bytes([number + 1]) * size})
            places.append(path.stat().st_size)
            if flush:
                await table.flush()
        content = path.read_bytes()
        await table.close()
        return content, places

    return asyncio.run(main())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    return log_with_places(tmp_path_factory.mktemp("wal") / "table", flush=False)


@pytest.fixture(scope="module")
def flushed_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    return log_with_places(tmp_path_factory.mktemp("wal") / "table", flush=True)


def test_a_whole_log_is_not_torn(log: tuple[bytes, list[int]]) -> None:
    content, _ = log
    assert torn_at(content) is None
    assert torn_at(b"") is None
    assert torn_at(content + bytes(100)) is None
    assert torn_at(bytes(5 * BLOCK)) is None


def test_a_torn_last_record_is_found_wherever_it_is_torn(log: tuple[bytes, list[int]]) -> None:
    content, places = log
    for last in (1, 3, 4):
        start, end = places[last], places[last + 1]
        for kept in [*range(5, 12), (end - start) // 2, end - start - 1]:
            torn = content[: start + kept] + bytes(end - start - kept)
            assert torn_at(torn) == start, (last, kept)


def test_a_record_of_which_only_whole_blocks_were_written_is_torn(log: tuple[bytes, list[int]]) -> None:
    content, places = log
    cut = places[3] // BLOCK * BLOCK + BLOCK
    assert torn_at(content[:cut] + bytes(3 * BLOCK)) == places[3]


def test_holes_in_what_was_never_flushed_are_cut_off_with_all_behind(log: tuple[bytes, list[int]]) -> None:
    content, places = log
    for last in range(5):
        torn = bytearray(content)
        torn[places[last] + 10 : places[last] + 15] = b"\xaa" * 5
        assert torn_at(bytes(torn)) == places[last]
    torn = bytearray(content)
    torn[places[3] + BLOCK : places[3] + BLOCK + 2000] = bytes(2000)  # in a later fragment of the record
    assert torn_at(bytes(torn)) == places[3]


def test_damage_to_what_was_flushed_is_left_alone(flushed_log: tuple[bytes, list[int]]) -> None:
    """A mark behind every flush says so. A power cut may take the last one, and only then its records look torn."""
    content, places = flushed_log
    for number in range(5):
        for at in (0, 5, 15):
            damaged = bytearray(content)
            damaged[places[number] + at] ^= 1
            assert torn_at(bytes(damaged)) is None
    damaged = bytearray(content)
    damaged[places[5] + 15] ^= 1
    assert torn_at(bytes(damaged)) == places[5]
    damaged[places[4] + 15] ^= 1
    assert torn_at(bytes(damaged)) == places[4]


def test_a_head_or_a_mark_that_a_block_boundary_divides_is_understood(tmp_path: Path) -> None:
    """The mark of the first write begins a few bytes before the boundary, so that it is in two fragments."""
    for number, left in enumerate(range(7, 60, 4)):
        content, places = log_with_places(tmp_path / f"{number}-alone", True, [BLOCK - left - 7 - 12 - 6])
        damaged = bytearray(content)
        damaged[places[0] + 15] ^= 1
        assert torn_at(bytes(damaged)) is None, left
        content, places = log_with_places(tmp_path / str(number), True, [BLOCK - left - 7 - 12 - 6, 10, 10])
        assert places[1] == BLOCK - left
        damaged = bytearray(content)
        damaged[places[0] + 15] ^= 1
        assert torn_at(bytes(damaged)) is None, left
        damaged = bytearray(content)
        damaged[places[1] + left + 15] ^= 1
        assert torn_at(bytes(damaged)) is None, left
        damaged = bytearray(content)
        damaged[places[3] + 15] ^= 1
        assert torn_at(bytes(damaged)) == places[3], left


def test_only_the_newest_log_is_cut_and_the_rest_is_kept(tmp_path: Path, log: tuple[bytes, list[int]]) -> None:
    content, places = log
    torn = content[:-1] + b"\0\0"
    (tmp_path / "000009.log").write_bytes(torn)
    (tmp_path / "000010.log").write_bytes(torn)
    assert cut_torn_tail(tmp_path)
    assert (tmp_path / "000009.log").read_bytes() == torn
    assert (tmp_path / "000010.log").read_bytes() == content[: places[-2]]
    assert (tmp_path / "000010.torn").read_bytes() == torn[places[-2] :]
    assert not cut_torn_tail(tmp_path)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    assert not cut_torn_tail(tmp_path)


def test_no_header_of_a_whole_log_is_odd(log: tuple[bytes, list[int]]) -> None:
    content, _ = log
    for whole in (content, b"", content[:-5], content + bytes(100), content + bytes(3 * BLOCK)):
        assert odd_header(whole) is None


def test_a_record_of_another_kind_is_found_before_rocksdb_reads_it_for_ever(
    flushed_log: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    content, places = flushed_log
    damaged = bytearray(content)
    damaged[places[2] + 6] ^= 4  # a whole record becomes one of a log in its second use
    assert odd_header(bytes(damaged)) == places[2]
    (tmp_path / "000004.log").write_bytes(damaged)
    with pytest.raises(Corrupt, match="no known kind"):
        asyncio.run(Table.open(tmp_path))


def test_a_torn_end_of_another_kind_is_cut_off(log: tuple[bytes, list[int]], tmp_path: Path) -> None:
    content, places = log
    for kind in (0, 5, 8, 130):
        torn = bytearray(content)
        torn[places[4] + 6] = kind
        directory = tmp_path / str(kind)
        asyncio.run(_make(directory))
        (path,) = directory.glob("*.log")
        path.write_bytes(torn)

        async def rows(directory: Path = directory) -> dict[bytes, bytes]:
            table = await Table.open(directory)
            try:
                return dict(table.scan(b"", b"\xff"))
            finally:
                await table.close()

        assert sorted(asyncio.run(rows())) == [b"0", b"1", b"2", b"3"]


async def _make(directory: Path) -> None:
    await (await Table.open(directory)).close()
