"""The embedded store of a service: the real engine, over a table on the simulated disk of its host.

A commit is written at once, and seen by other transactions before it is durable. A power cut takes some of the newest
writes back that were not flushed, however many, but never one without all that came after it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.record_rows import Rows
from tests.harness.simulated.record_table import SimTable, open_table
from threefs.env.clock import Clock
from threefs.kv.engine_api import Pair
from threefs.kv.rocks import RocksEngine

PATH = Path("/kv")


class LocalTable(SimTable):
    """threefs.kv.table.Table, as far as an engine needs it."""

    def view(self) -> "LocalView":
        self._check_readable()
        return LocalView(self, self._rows.copied())


class LocalView:
    """threefs.kv.transaction.View: the table as it was."""

    def __init__(self, table: LocalTable, rows: Rows) -> None:
        self._table = table
        self._rows = rows

    def get(self, key: bytes) -> bytes | None:
        self._table._check_readable()
        return self._rows.values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        self._table._check_readable()
        return self._rows.scan(begin, end, limit, reverse)


class _Pairs(dict[bytes, bytes]):
    """All that was in a store, and how many changes it had counted."""

    changes = 0


class DiskStore:
    """All of such a store at once, as tests.sim.kv.SimKv has it. What is loaded from a backup begins to count anew."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def pairs(self) -> dict[bytes, bytes]:
        found, rows = _Pairs(), self._disk.tables.get(PATH)
        if rows is not None:
            found.update(rows.values)
            found.changes = rows.changes
        return found

    def mount(self, pairs: Mapping[bytes, bytes]) -> None:
        """Another store is on the disk, all of it durable. No process may use it."""
        rows = self._disk.tables[PATH] = Rows()
        rows.write(pairs)
        rows.undo.clear()
        rows.changes = pairs.changes if isinstance(pairs, _Pairs) else rows.changes


async def open_engine(disk: SimDisk, clock: Clock) -> RocksEngine:
    """By one process, for as long as it lives. Raises Unavailable."""
    opened = await open_table(disk, PATH)
    table: Any = LocalTable(disk, opened._rows)
    return RocksEngine(table, clock=clock)


def draw(dice: SeededRandom, length_s: float) -> list[tuple[float, str, float]]:
    """Power cuts of the hosts that have such stores: moments, hosts and times."""
    return [(dice.uniform(0, length_s), ("m1", "t1")[dice.below(2)], dice.uniform(0.05, 2.0)) for _ in range(6)]
