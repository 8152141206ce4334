"""The first rows of a scan are taken by steps, the rest in one go."""

import asyncio
from pathlib import Path

import pytest

from threefs.errors import Corrupt
from threefs.kv.table import Table


@pytest.mark.parametrize(("damaged", "last"), [(0.5, b"09999"), (0.01, b"00002")])
def test_a_scan_that_meets_damage_is_no_end(tmp_path: Path, damaged: float, last: bytes) -> None:
    """An iterator ends there as it does behind the last row; in the first rows and in those behind."""
    rows: dict[bytes, bytes | None] = {b"%05d" % number: b"%050d" % number for number in range(2000)}

    async def fill() -> None:
        table = await Table.open(tmp_path)
        table.write(rows)
        await table.close()

    async def scan() -> None:
        table = await Table.open(tmp_path)
        try:
            with pytest.raises(Corrupt):
                table.scan(b"00000", last)
            with pytest.raises(Corrupt):
                table.scan(b"00000", last, 1999)
        finally:
            await table.close()

    asyncio.run(fill())
    (file,) = tmp_path.glob("*.sst")
    with file.open("r+b") as data:
        data.seek(int(file.stat().st_size * damaged))
        (octet,) = data.read(1)
        data.seek(-1, 1)
        data.write(bytes([octet ^ 1]))
    asyncio.run(scan())


async def test_a_scan_takes_as_many_rows_as_it_may(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    table.write({b"%03d" % number: b"x" for number in range(250)})
    table.write({b"%03d" % number: None for number in range(90, 100)})
    keys = [b"%03d" % number for number in range(250) if not 90 <= number < 100]
    for begin, end in ((0, 250), (5, 6), (5, 5), (100, 196), (100, 197), (2, 999), (240, 999)):
        wanted = [key for key in keys if b"%03d" % begin <= key < b"%03d" % end]
        for limit in (0, 1, 95, 96, 97, 143, 144, 145, 230, 240, 250, 1000):
            found = [key for key, _ in table.scan(b"%03d" % begin, b"%03d" % end, limit)]
            assert found == (wanted[:limit] if limit else wanted)
    await table.close()
