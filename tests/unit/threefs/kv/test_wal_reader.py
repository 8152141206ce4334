import os
import random
from pathlib import Path
from typing import Any

import pytest

from threefs.errors import TooOld
from threefs.kv.table import Table
from threefs.kv.wal_batches import changes
from threefs.kv.wal_reader import LogReader, Write


def numbers(writes: list[Write]) -> list[int]:
    """Those of the keys, which are numbers."""
    return [int(key) for write in writes for key, _ in changes(write.batch)]


def check_row(writes: list[Write], after: int) -> int:
    for write in writes:
        assert write.first == after + 1
        after += write.changes
    return after


@pytest.mark.slow
@pytest.mark.parametrize("rest_at", [0, 3])
async def test_a_reader_sees_each_durable_write_once_over_many_logs_and_starts(tmp_path: Path, rest_at: int) -> None:
    """The table is rotated, closed and opened again; one reader goes on, a fresh one is as good."""
    dice = random.Random(5)
    seen: list[int] = []
    after = number = 0
    reader = LogReader(tmp_path / "t")
    for start in range(4):
        table = await Table.open(tmp_path / "t", only_copy=True)
        for step in range(40):
            for _ in range(dice.randrange(4)):
                table.write({b"%d" % number: bytes(dice.choice([10, 5000, 70_000]))})
                number += 1
            if step % 7 == 0:
                table._store.flush()  # another log from here on
            if step % 3 == 0:
                await table.flush()
            if dice.random() < 0.5 and start != rest_at:
                writes = reader.read(after, table.durable_change, dice.choice([1, 100_000, 1 << 30]))
                after = check_row(writes, after)
                seen += numbers(writes)
            if dice.random() < 0.1:
                reader = LogReader(tmp_path / "t")
        await table.flush()
        await table.close()
    table = await Table.open(tmp_path / "t", only_copy=True)
    while writes := reader.read(after, table.durable_change, 1 << 20):
        after = check_row(writes, after)
        seen += numbers(writes)
    assert seen == list(range(number)) and after == table.durable_change
    assert len(list((tmp_path / "t").rglob("*.log"))) > 10
    fresh = LogReader(tmp_path / "t").read(0, table.durable_change, 1 << 40)
    assert numbers(fresh) == seen
    await table.close()


async def test_two_backups_that_follow_do_not_make_each_other_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search reads a log from its beginning, which the meta service must not do for each call."""
    table = await Table.open(tmp_path / "t", only_copy=True)
    reader = LogReader(tmp_path / "t")
    searches: list[int] = []
    find = LogReader._find

    def counted(self: LogReader, after: int) -> Any:
        searches.append(after)
        return find(self, after)

    monkeypatch.setattr(LogReader, "_find", counted)
    seen: tuple[list[int], list[int]] = ([], [])
    at = [0, 0]
    for step in range(20):
        table.write({b"%d" % step: b"v"})
        await table.flush()
        for backup in [0, 1] if step % 3 == 0 else [step % 2]:
            writes = reader.read(at[backup], table.durable_change, 1 << 20)
            at[backup] = check_row(writes, at[backup])
            seen[backup].extend(numbers(writes))
    assert searches == [0, 0], "each backup searches for its begin, once"
    assert seen[1] == list(range(20)) and seen[0] == list(range(len(seen[0]))) and len(seen[0]) >= 18
    await table.close()


async def test_what_is_not_durable_is_not_read(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "t", only_copy=True)
    table.write({b"1": b"a"})
    await table.flush()
    durable = table.durable_change
    table.write({b"2": b"b", b"3": b"b"})
    assert numbers(LogReader(tmp_path / "t").read(0, durable, 1 << 20)) == [1]
    assert LogReader(tmp_path / "t").read(durable, durable, 1 << 20) == []
    await table.close()


async def test_logs_that_are_gone_are_reported(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "t", only_copy=True)
    for number in range(6):
        table.write({b"%d" % number: b"v"})
        await table.flush()
        if number == 2:
            table._store.flush()
    with pytest.raises(TooOld, match="an older copy of itself"):
        LogReader(tmp_path / "t").read(table.durable_change + 1, table.durable_change, 1)
    (old,) = (tmp_path / "t" / "archive").glob("*.log")
    os.unlink(old)
    with pytest.raises(TooOld, match="logs of the store go from change 1 to"):
        LogReader(tmp_path / "t").read(1, table.durable_change, 1 << 20)
    with pytest.raises(TooOld):
        LogReader(tmp_path / "t").read(0, table.durable_change, 1 << 20)
    await table.close()


async def test_a_table_without_kept_logs_says_so(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "t")
    table.write({b"1": b"a"})
    await table.flush()
    table._store.flush()
    with pytest.raises(TooOld, match="have no change 1"):
        LogReader(tmp_path / "t").read(0, table.durable_change, 1 << 20)
    await table.close()
