import asyncio
import shutil
from pathlib import Path

import pytest

from threefs.kv.table import Table
from threefs.kv.wal import cut_torn_tail, torn_at

WRITES = [100, 20_000, 5, 90_000, 300]  # bytes of the values; some records span blocks, one of them three
BLOCK = 32 << 10


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """A log, and where each of its writes begins and the last ends."""
    directory = tmp_path_factory.mktemp("wal") / "table"

    async def main() -> tuple[bytes, list[int]]:
        table = await Table.open(directory)
        (path,) = directory.glob("*.log")
        places = [path.stat().st_size]
        for number, size in enumerate(WRITES):
            table.write({b"%d" % number: bytes([number + 1]) * size})
            places.append(path.stat().st_size)
        content = path.read_bytes()
        await table.close()
        return content, places

    return asyncio.run(main())


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


def test_a_hole_in_the_middle_of_a_long_last_record_is_still_its_damage_alone(log: tuple[bytes, list[int]]) -> None:
    """Its later fragments are valid, so it is not taken for a torn end: an error is better than a wrong guess."""
    content, places = log
    torn = bytearray(content[: places[4]])
    torn[places[3] + 1000 : places[3] + 2000] = bytes(1000)
    assert torn_at(bytes(torn)) is None


def test_damage_with_valid_records_behind_it_is_left_alone(log: tuple[bytes, list[int]]) -> None:
    content, places = log
    for number in range(4):
        damaged = bytearray(content)
        damaged[places[number] + 15] ^= 1
        assert torn_at(bytes(damaged)) is None


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
