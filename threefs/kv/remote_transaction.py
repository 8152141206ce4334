"""The transaction of remote stores. Its first read fixes the state that it sees; the store detects conflicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from threefs.env.clock import Clock
from threefs.errors import InvalidArgument
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, Pair
from threefs.kv.transaction import Draft, overlay, range_read, scan_limit

#: Key, value, and version. Each write gives the key another version. An absent key has version 0.
Row = tuple[bytes, bytes, int]


class Snapshot(Protocol):
    """One state of the store: the one at the first call."""

    async def fetch(self, keys: Sequence[bytes]) -> list[Row]:
        """The rows of those keys that exist."""
        ...

    async def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]: ...


class Store(Protocol):
    """The part of an engine that a transaction needs."""

    async def commit(self, attempt: "RemoteTransaction") -> None: ...

    async def confirm(self, attempt: "RemoteTransaction") -> None: ...


@dataclass(frozen=True, slots=True)
class Scan:
    """A summary of the rows in a range, which shows later whether the range has changed."""

    begin: bytes
    end: bytes
    count: int
    versions: int  # their sum


class RemoteTransaction(Draft):
    """A transaction that reads from a snapshot of a remote store."""

    def __init__(
        self, store: Store, snapshot: Snapshot, clock: Clock, lifetime_s: float = MAX_TRANSACTION_SECONDS
    ) -> None:
        super().__init__(clock, lifetime_s)
        self.snapshot = snapshot
        self.versions: dict[bytes, int] = {}  # of the keys that were read one by one
        self.scans: dict[tuple[bytes, bytes], Scan] = {}
        self._store = store
        self._values: dict[bytes, bytes] = {}  # of the keys in `versions` that exist

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        return (await self.get_many((key,), snapshot=snapshot))[0]

    async def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        self._check_reading()
        stored = dict.fromkeys(key for key in keys if key not in self.writes)
        await self.fetch_versions([key for key in stored if key not in self.versions])
        if not snapshot:
            self.reads.points.update(stored)
        writes, values = self.writes, self._values
        return [writes[key] if key in writes else values.get(key) for key in keys]

    async def fetch_versions(self, keys: Sequence[bytes]) -> None:
        """Read the versions of these keys."""
        if not keys:
            return
        rows = await self.snapshot.fetch(keys)
        self.versions.update(dict.fromkeys(keys, 0))
        for key, value, version in rows:
            self.versions[key] = version
            self._values[key] = value

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        if limit < 0:
            raise InvalidArgument(f"limit {limit} is negative")
        self._check_reading()
        if begin >= end:
            return []
        own = self._own(begin, end)
        rows = await self.snapshot.scan(begin, end, scan_limit(limit, own), reverse)
        pairs = overlay([(key, value) for key, value, _ in rows], own, limit, reverse)
        if not snapshot:
            seen = range_read(begin, end, pairs, limit, reverse)
            self.reads.ranges.append(seen)
            self._note(*seen, rows)
        return pairs

    async def fetch_range(self, begin: bytes, end: bytes) -> None:
        """Read the summary of the range."""
        if (begin, end) not in self.scans:
            self._note(begin, end, await self.snapshot.scan(begin, end, 0, False) if begin < end else [])

    def _note(self, begin: bytes, end: bytes, rows: Sequence[Row]) -> None:
        inside = [version for key, _, version in rows if begin <= key < end]
        self.scans[begin, end] = Scan(begin, end, len(inside), sum(inside))

    async def confirm(self) -> None:
        self._check_reading()
        self._ended = True
        await self._store.confirm(self)

    async def commit(self) -> None:
        if self._ended and not self.writes:
            return  # `confirm` was called
        self._check_reading()
        self._ended = True
        if not self.writes:
            await self._store.confirm(self)
            return
        self._check_size()
        await self._store.commit(self)

    def _check_reading(self) -> None:
        self._check_age()
        assert not self._ended, "the transaction has ended"
