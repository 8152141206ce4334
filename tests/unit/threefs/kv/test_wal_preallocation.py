import os
from pathlib import Path

import pytest

from threefs.env.sync_policy import SyncPolicy
from threefs.kv.table import Table
from threefs.kv.wal_preallocation import PIECE_BYTES, WalPreallocator


class Writer:
    """Appends to a log as the store does: at a place of its own, wherever the file ends."""

    def __init__(self, log: Path) -> None:
        self.written = b""
        self._log = log
        log.touch()

    def write(self, record: bytes) -> None:
        descriptor = os.open(self._log, os.O_WRONLY)
        os.pwrite(descriptor, record, len(self.written))
        os.close(descriptor)
        self.written += record

    def check(self) -> int:
        """That nothing was lost, and how much room there is."""
        content = self._log.read_bytes()
        assert content[: len(self.written)] == self.written
        assert not content[len(self.written) :].strip(b"\0")
        return len(content) - len(self.written)


def test_there_is_always_room_behind_what_was_written(tmp_path: Path) -> None:
    writer, room = Writer(tmp_path / "000004.log"), WalPreallocator(tmp_path)
    for number in range(200):
        record = bytes([1 + number % 255]) * (1 + number * 97 % 20_000)
        writer.write(record)
        room.used(len(record))
        assert PIECE_BYTES // 2 < writer.check() < 3 * PIECE_BYTES


def test_what_was_written_beyond_the_room_is_left_alone(tmp_path: Path) -> None:
    writer, room = Writer(tmp_path / "000004.log"), WalPreallocator(tmp_path)
    for size in (10, 5 * PIECE_BYTES, 10, 3 * PIECE_BYTES, 100):
        writer.write(b"x" * size)
        room.used(size)
        assert writer.check() >= PIECE_BYTES


def test_a_new_log_gets_room_when_that_of_the_old_one_would_be_used_up(tmp_path: Path) -> None:
    old, room = Writer(tmp_path / "000009.log"), WalPreallocator(tmp_path)
    old.write(b"x" * 100)
    room.used(100)
    before = old.check()
    new = Writer(tmp_path / "000010.log")
    for _ in range(100):
        new.write(b"y" * 10_000)
        room.used(10_000)
    assert old.check() == before
    assert new.check() > PIECE_BYTES // 2


def test_without_a_log_or_with_a_full_disk_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = WalPreallocator(tmp_path)
    room.used(100)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    writer = Writer(tmp_path / "000004.log")
    writer.write(b"x")
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(10):
        room.used(PIECE_BYTES)
    monkeypatch.undo()
    assert writer.check() == 0
    for _ in range(10):
        room.used(PIECE_BYTES)
    assert writer.check() >= PIECE_BYTES


async def test_a_table_fills_the_room_and_cuts_it_off_in_the_end(tmp_path: Path) -> None:
    table = await Table.open(tmp_path, sync_policy=SyncPolicy())
    (log,) = tmp_path.glob("*.log")
    for number in range(100):
        await table.flush(table.write({b"%d" % number: b"v" * 100}))
        if number == 10:
            length = log.stat().st_size
    assert length >= PIECE_BYTES
    assert log.stat().st_size == length, "records replace the room"
    assert len(log.read_bytes().rstrip(b"\0")) > 100 * 100
    await table.close()
    assert sum(log.stat().st_size for log in tmp_path.glob("*.log")) < 100 * 200
    table = await Table.open(tmp_path)
    assert len(table.scan(b"", b"\xff")) == 100
    await table.close()


def test_a_sync_counts_the_pages_that_changed_and_not_all_that_were_written_ahead(tmp_path: Path) -> None:
    log = tmp_path / "000004.log"
    writer, room = Writer(log), WalPreallocator(tmp_path)
    writer.write(b"x")
    room.used(1)
    descriptor = os.open(log, os.O_WRONLY)
    os.fsync(descriptor)
    before, size = _written_bytes(), 5000
    for _ in range(40):
        writer.write(b"y" * size)
        room.used(size)
        os.fdatasync(descriptor)
    os.close(descriptor)
    assert writer.check() > 0
    shared = 2 * 4096  # the pages at both ends of a record are written with its neighbours, too
    assert _written_bytes() - before <= 40 * (size + shared) + PIECE_BYTES


def _written_bytes() -> int:
    """What the kernel says that this process has had written to disks."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["write_bytes"])
