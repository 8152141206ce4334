import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs.errors import Corrupt
from threefs.kv.table import Table
from threefs.kv.wal_batches import changes
from threefs.kv.wal_reader import LogReader


async def test_writes_are_read_as_they_were_made(tmp_path: Path) -> None:
    made: list[dict[bytes, bytes | None]] = [
        {b"": b"", b"k" * 10_000: b"v" * 100_000},
        {b"a": None, b"b": b"x" * 127, b"c": b"y" * 128},
        {b"gone": None},
    ]
    table = await Table.open(tmp_path / "t")
    for changed in made:
        table.write(changed)
        await table.flush()
    writes = LogReader(tmp_path / "t").read(0, table.durable_change, 1 << 20)
    found = [dict(changes(write.batch)) for write in writes]
    assert [one for one in found if one] == made, "without marks"
    await table.close()


@pytest.mark.parametrize(
    "batch", [b"\x07", b"\x01", b"\x01\x05ab", b"\x01\x01a", b"\x00\xff\xff\xff\xff\xff\x01", b"\x00\x80"]
)
def test_what_cannot_be_is_damage(batch: bytes) -> None:
    with pytest.raises(Corrupt):
        list(changes(batch))


@given(st.binary(max_size=60))
def test_any_bytes_are_changes_or_damage(batch: bytes) -> None:
    with contextlib.suppress(Corrupt):
        list(changes(batch))
