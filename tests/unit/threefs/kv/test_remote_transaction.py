from collections.abc import Sequence

import pytest

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument
from threefs.kv.remote_transaction import RemoteTransaction, Row, Scan


class Shelf:
    """A store that counts how often it is asked."""

    def __init__(self, **rows: str) -> None:
        self.rows = [(key.encode(), value.encode(), number) for number, (key, value) in enumerate(rows.items(), 1)]
        self.asked = 0
        self.committed: list[RemoteTransaction] = []
        self.confirmed = 0

    async def fetch(self, keys: Sequence[bytes]) -> list[Row]:
        self.asked += 1
        return [row for row in self.rows if row[0] in keys]

    async def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]:
        self.asked += 1
        rows = sorted((row for row in self.rows if begin <= row[0] < end), reverse=reverse)
        return rows[:limit] if limit else rows

    async def commit(self, attempt: RemoteTransaction) -> None:
        self.committed.append(attempt)

    async def confirm(self, attempt: RemoteTransaction) -> None:
        self.confirmed += 1


def begin(shelf: Shelf) -> RemoteTransaction:
    return RemoteTransaction(shelf, shelf, CLOCK)


async def test_keys_are_asked_for_once_and_in_one_call() -> None:
    shelf = Shelf(a="1", b="2")
    tx = begin(shelf)
    tx.set(b"w", b"own")
    assert await tx.get_many([b"b", b"x", b"w", b"b"]) == [b"2", None, b"own", b"2"]
    assert shelf.asked == 1
    assert (await tx.get(b"b"), await tx.get(b"x"), await tx.get(b"w")) == (b"2", None, b"own")
    assert shelf.asked == 1, "one state does not change"
    assert tx.versions == {b"b": 2, b"x": 0}
    assert tx.reads.points == {b"b", b"x"}, "what it wrote itself depends on nobody"


async def test_a_snapshot_read_depends_on_nothing_until_it_is_repeated_as_another() -> None:
    tx = begin(Shelf(a="1"))
    await tx.get(b"a", snapshot=True)
    await tx.get_range(b"a", b"z", snapshot=True)
    assert not tx.reads.points and not tx.reads.ranges and not tx.scans
    await tx.get(b"a")
    assert tx.reads.points == {b"a"}


async def test_a_scan_notes_what_the_store_holds_where_it_looked() -> None:
    tx = begin(Shelf(a="1", b="2", c="3", d="4"))
    tx.clear(b"b")
    tx.set(b"bb", b"own")
    assert await tx.get_range(b"a", b"z", limit=2) == [(b"a", b"1"), (b"bb", b"own")]
    assert tx.scans == {(b"a", b"bb\0"): Scan(b"a", b"bb\0", count=2, versions=3)}
    with pytest.raises(InvalidArgument):
        await tx.get_range(b"a", b"z", limit=-1)


async def test_what_was_only_noted_can_be_learned() -> None:
    shelf = Shelf(a="1", b="2")
    tx = begin(shelf)
    tx.add_read_conflict(b"b")
    tx.add_read_conflict_range(b"a", b"z")
    await tx.fetch_versions([b"b", b"c"])
    await tx.fetch_range(b"a", b"z")
    await tx.fetch_range(b"a", b"z")
    assert tx.versions == {b"b": 2, b"c": 0}
    assert tx.scans[b"a", b"z"] == Scan(b"a", b"z", 2, 3)
    assert shelf.asked == 2


async def test_only_what_writes_is_committed() -> None:
    shelf = Shelf(a="1")
    tx = begin(shelf)
    await tx.get(b"a")
    await tx.commit()
    assert (shelf.committed, shelf.confirmed) == ([], 1)
    tx = begin(shelf)
    await tx.confirm()
    await tx.commit()
    assert (shelf.committed, shelf.confirmed) == ([], 2), "confirmed once"
    tx = begin(shelf)
    tx.set(b"a", b"2")
    await tx.commit()
    assert shelf.committed == [tx]
    with pytest.raises(AssertionError, match="ended"):
        await tx.get(b"a")
    with pytest.raises(AssertionError, match="ended"):
        tx.set(b"a", b"3")
