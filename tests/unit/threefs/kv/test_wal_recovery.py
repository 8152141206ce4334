import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from threefs.errors import Corrupt
from threefs.kv.table import Table
from threefs.kv.wal_preallocation import PIECE_BYTES
from threefs.kv.wal_recovery import cut_torn_tails, encode_mark, flushed, odd_header, torn_at

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


def test_torn_logs_are_cut_and_the_rest_is_kept(tmp_path: Path, log: tuple[bytes, list[int]]) -> None:
    content, places = log
    torn = content[:-1] + b"\0\0"
    for name in ("000009", "000010"):
        (tmp_path / f"{name}.log").write_bytes(torn)
    assert cut_torn_tails(tmp_path)
    for name in ("000009", "000010"):
        assert (tmp_path / f"{name}.log").read_bytes() == content[: places[-2]]
        assert (tmp_path / f"{name}.torn").read_bytes() == torn[places[-2] :]
    assert not cut_torn_tails(tmp_path)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    assert not cut_torn_tails(tmp_path)


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
    with pytest.raises(Corrupt, match="an unknown kind"):
        asyncio.run(Table.open(tmp_path))


def test_a_length_that_goes_past_the_end_of_the_log_hides_nothing_that_was_flushed(tmp_path: Path) -> None:
    """RocksDB would drop all from there on, as it drops a record that was cut short."""
    content, places = log_with_places(tmp_path / "log", True, [100, 20_000, 15_000, 300])
    assert places[2] < BLOCK < places[3], "the third record has a fragment in each block"
    target = tmp_path / "000004.log"
    tried = []
    for header in (*places[:3], BLOCK, *places[3:]):
        for bit in range(16):
            damaged = bytearray(content)
            damaged[header + 4 + bit // 8] ^= 1 << bit % 8
            end = header + 7 + int.from_bytes(damaged[header + 4 : header + 6], "little")
            if not len(content) < end <= header // BLOCK * BLOCK + BLOCK:
                continue
            last = header == places[-1]  # the mark of the last flush, which names no row
            assert odd_header(bytes(damaged)) == (None if last else header), (header, bit)
            tried.append(header)
            target.write_bytes(damaged)
            if not last:
                with pytest.raises(Corrupt, match="too long"):
                    asyncio.run(Table.open(tmp_path))
    assert {BLOCK, places[3], places[4]} == set(tried)


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


# ---- a power cut around the moment at which the next log begins

FIRST = [b"flushed%02d" % n for n in range(5)]
PAGE = 4096


@dataclass
class Rotation:
    """What lay on the disk when a second log had just begun."""

    directory: Path
    files: dict[str, bytes]  # all but the logs
    old: bytes
    new: bytes
    synced: int  # bytes of the old log that were flushed for sure
    keys: list[bytes]  # in the order of the writes
    room: bytes = b""  # behind both logs

    def rows(self, old: bytes, new: bytes | None) -> list[bytes]:
        """The keys after a power cut that left the logs so, which are those of the first writes."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        for name, content in self.files.items():
            (self.directory / name).write_bytes(content)
        (self.directory / "000004.log").write_bytes(old + self.room)
        if new is not None:
            (self.directory / "000008.log").write_bytes(new + self.room)
        keys = asyncio.run(self._open_twice())
        assert keys == self.keys[: len(keys)], "a write is there, one before it is not"
        return keys

    async def _open_twice(self) -> list[bytes]:
        found = []
        for _ in range(2):
            table = await Table.open(self.directory)
            found.append([key for key, _ in table.scan(b"", b"\xff")])
            await table.close()
        assert found[0] == found[1]
        return found[0]


def rotation(directory: Path, flush: bool, gone: bool = False) -> Rotation:
    """`flush`: once more after the second log has begun. `gone`: the content of the old one is in a sorted file."""

    async def main() -> Rotation:
        table = await Table.open(directory / "table")
        (path,) = (directory / "table").glob("*.log")
        kept = directory / "kept.log"
        os.link(path, kept)
        for key in FIRST:
            table.write({key: bytes(1000)})
        await table.flush()
        keys, synced = list(FIRST), path.stat().st_size
        files = _files(directory / "table")
        while len(list((directory / "table").glob("*.log"))) == 1 and path.exists():
            keys.append(b"row%04d" % len(keys))
            table.write({keys[-1]: bytes([len(keys)]) * 1000})
        for _ in range(3):
            keys.append(b"row%04d" % len(keys))
            table.write({keys[-1]: bytes([len(keys)]) * 1000})
        if flush:
            await table.flush()
        while gone and path.exists():
            await asyncio.sleep(0.01)
        (new,) = (log for log in (directory / "table").glob("*.log") if log != path)
        if gone:
            files = _files(directory / "table")
        made = Rotation(directory / "cut", files, kept.read_bytes(), new.read_bytes(), synced, keys)
        assert (path.name, new.name) == ("000004.log", "000008.log")
        await table.close()
        return made

    return asyncio.run(main())


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".log" and path.is_file()}


@pytest.fixture
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threefs.kv.rocksdb_store._WRITE_BUFFER_BYTES", 64 << 10)


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, PIECE_BYTES])
@pytest.mark.usefixtures("small_logs")
def test_a_power_cut_at_a_rotation_leaves_the_first_writes(tmp_path: Path, room: int) -> None:
    cut = rotation(tmp_path, flush=False)
    cut.room = bytes(room)
    assert cut.rows(cut.old, cut.new) == cut.keys
    in_old = len(cut.rows(cut.old, None))
    assert len(FIRST) < in_old < len(cut.keys) and len(cut.rows(cut.old, b"")) == in_old
    middle = (cut.synced + len(cut.old)) // 2 // PAGE * PAGE
    hole = cut.old[:middle] + bytes(PAGE) + cut.old[middle + PAGE :]
    ends = (cut.old[:middle], cut.old[:middle] + bytes(len(cut.old) - middle), cut.old[: cut.synced], hole)
    for old in ends:
        for new in (cut.new, None, b"", bytes(len(cut.new)), cut.new[:1500] + bytes(len(cut.new) - 1500)):
            assert len(FIRST) <= len(cut.rows(old, new)) < in_old
    assert len(cut.rows(cut.old, cut.new[:1500] + bytes(len(cut.new) - 1500))) in range(in_old, len(cut.keys))


@pytest.mark.parametrize("room", [0, PIECE_BYTES])
@pytest.mark.usefixtures("small_logs")
def test_what_was_flushed_after_a_rotation_is_not_given_up(tmp_path: Path, room: int) -> None:
    cut = rotation(tmp_path, flush=True)
    cut.room = bytes(room)
    assert cut.rows(cut.old, cut.new) == cut.keys
    middle = (cut.synced + len(cut.old)) // 2
    for old in (cut.old[:middle], cut.old[:middle] + bytes(len(cut.old) - middle)):
        with pytest.raises(Corrupt, match="had been flushed"):
            cut.rows(old, cut.new)
        assert (tmp_path / "cut" / "000008.log").read_bytes() == cut.new + cut.room


@pytest.mark.parametrize("room", [0, PIECE_BYTES])
@pytest.mark.usefixtures("small_logs")
def test_a_torn_log_that_returns_after_its_content_is_in_sorted_files_does_no_harm(tmp_path: Path, room: int) -> None:
    cut = rotation(tmp_path, flush=True, gone=True)
    cut.room = bytes(room)
    middle = (cut.synced + len(cut.old)) // 2
    for old in (cut.old, cut.old[:middle], cut.old[:middle] + bytes(len(cut.old) - middle), b""):
        assert cut.rows(old, cut.new) == cut.keys


@pytest.mark.usefixtures("small_logs")
async def test_what_the_first_mark_of_a_log_covers_is_not_given_up(tmp_path: Path) -> None:
    """The last flush of a log may leave its mark to the next one."""
    table = await Table.open(tmp_path / "table")
    for key in FIRST:
        table.write({key: bytes(1000)})
    table._store.flush_wal(True)
    last = table.change
    shutil.copytree(tmp_path / "table", tmp_path / "cut")
    (old,) = (tmp_path / "cut").glob("*.log")
    table._store.flush()
    table._mark = encode_mark(last)
    table.write({b"next": b""})
    table._store.flush_wal(True)
    shutil.copy(max((tmp_path / "table").glob("*.log")), tmp_path / "cut")
    content = bytearray(old.read_bytes())
    content[-500] ^= 1
    old.write_bytes(content)
    assert flushed(tmp_path / "cut") == last
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"change {last} had been flushed"):
            await Table.open(tmp_path / "cut")
    await table.close()
