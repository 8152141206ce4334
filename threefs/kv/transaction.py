"""Transactions: they keep their writes in memory and note their reads, and the engine detects conflicts at the commit.

`Draft` is the part that all engines share. `BufferedTransaction` is the transaction of the engines in this process.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from threefs.env.clock import Clock
from threefs.errors import InvalidArgument, TooLarge, TooOld
from threefs.kv.conflicts import Reads
from threefs.kv.engine_api import (
    MAX_KEY_BYTES,
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_KEYS,
    MAX_TRANSACTION_SECONDS,
    MAX_VALUE_BYTES,
    Pair,
)

Writes = dict[bytes, bytes | None]  # None removes the key


class View(Protocol):
    """The store as it was at one version."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]: ...


class Committer(Protocol):
    """The part of an engine that a transaction needs."""

    @property
    def arrive(self) -> Callable[[], Awaitable[None]] | None:
        """Runs before every read, so that the engine can let other tasks run, or refuse. None: nothing runs."""
        ...

    async def commit(self, attempt: "BufferedTransaction") -> None: ...

    async def confirm(self, attempt: "BufferedTransaction") -> None: ...


class Draft:
    """The part of a transaction that needs no store: its limits, its age, its reads and its writes."""

    __slots__ = ("_ended", "_ends", "_lifetime_s", "_now", "_undo", "reads", "writes")

    def __init__(self, clock: Clock, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> None:
        self.reads = Reads()  # a commit since its beginning that changed one of these is a conflict
        self.writes: Writes = {}
        # since the savepoint: key, whether it had been written before, that value
        self._undo: list[tuple[bytes, bool, bytes | None]] | None = None
        self._now: Callable[[], float] = clock.monotonic
        self._lifetime_s = lifetime_s
        self._ends = clock.monotonic() + lifetime_s
        self._ended = False

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        raise NotImplementedError

    def add_read_conflict(self, key: bytes) -> None:
        self.reads.points.add(key)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        self.reads.ranges.append((begin, end))

    def set(self, key: bytes, value: bytes) -> None:
        if len(value) > MAX_VALUE_BYTES:
            raise TooLarge(f"a value of {len(value)} bytes is larger than the maximum of {MAX_VALUE_BYTES}")
        self._write(key, value)

    def clear(self, key: bytes) -> None:
        self._write(key, None)

    async def clear_range(self, begin: bytes, end: bytes, *, max_keys: int) -> bool:
        if max_keys < 1:
            raise InvalidArgument(f"max_keys must be at least 1, not {max_keys}")
        pairs = await self.get_range(begin, end, limit=max_keys + 1)
        for key, _ in pairs[:max_keys]:
            self.clear(key)
        return len(pairs) <= max_keys

    def _write(self, key: bytes, value: bytes | None) -> None:
        assert not self._ended, "the transaction has ended"
        if len(key) > MAX_KEY_BYTES:
            raise TooLarge(f"a key of {len(key)} bytes is larger than the maximum of {MAX_KEY_BYTES}")
        if self._undo is not None:
            self._undo.append((key, key in self.writes, self.writes.get(key)))
        self.writes[key] = value

    def savepoint(self) -> None:
        self._undo = []

    def rollback(self) -> None:
        assert self._undo is not None, "there is no savepoint"
        for key, was_there, value in reversed(self._undo):
            if was_there:
                self.writes[key] = value
            else:
                del self.writes[key]
        self._undo = []

    def _own(self, begin: bytes, end: bytes) -> Writes:
        """Its own writes in the range."""
        return {key: value for key, value in self.writes.items() if begin <= key < end}

    def _check_age(self) -> None:
        if self._now() > self._ends:
            raise TooOld(f"the transaction has lived longer than {self._lifetime_s:g} s; begin it again")

    def _check_size(self) -> None:
        most = len(self.writes) * (MAX_KEY_BYTES + MAX_VALUE_BYTES) + len(self.reads.points) * MAX_KEY_BYTES
        if most <= MAX_TRANSACTION_BYTES and not self.reads.ranges:
            return  # even the largest keys and values would fit
        size = self.reads.size_bytes()
        for key, value in self.writes.items():
            size += len(key) + (len(value) if value is not None else 0)
        if size > MAX_TRANSACTION_BYTES:
            raise TooLarge(f"a transaction of {size} bytes is larger than the maximum of {MAX_TRANSACTION_BYTES}")
        for count, what in (
            (len(self.writes), "writes"),
            (len(self.reads.points) + len(self.reads.ranges), "depends on"),
        ):
            if count > MAX_TRANSACTION_KEYS:
                raise TooLarge(f"a transaction {what} {count} keys, more than the maximum of {MAX_TRANSACTION_KEYS}")


class BufferedTransaction(Draft):
    """A transaction of an engine in this process, which reads from a view."""

    __slots__ = ("_arrive", "_committer", "_view", "seen", "version")

    def __init__(
        self,
        committer: Committer,
        view: View,
        version: int,
        clock: Clock,
        lifetime_s: float = MAX_TRANSACTION_SECONDS,
    ) -> None:
        super().__init__(clock, lifetime_s)
        self.version = version  # of the store that the view shows
        self.seen = Reads()  # snapshot reads
        self._committer = committer
        self._arrive = committer.arrive
        self._view: View | None = view

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        # Written out: every step of a path comes through here.
        if self._now() > self._ends:
            self._check_age()
        if self._arrive is not None:
            await self._arrive()
        if key in self.writes:
            assert not self._ended, "the transaction has ended"
            return self.writes[key]
        assert self._view is not None, "the transaction has ended"
        (self.seen if snapshot else self.reads).points.add(key)
        return self._view.get(key)

    async def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        if self._arrive is not None or any(key in self.writes for key in keys):
            return [await self.get(key, snapshot=snapshot) for key in keys]
        view = await self._reading()
        (self.seen if snapshot else self.reads).points.update(keys)
        return view.get_many(keys)

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        if limit < 0:
            raise InvalidArgument(f"limit {limit} is negative")
        view = await self._reading()
        if begin >= end:
            return []
        own = self._own(begin, end)
        stored = view.scan(begin, end, scan_limit(limit, own), reverse)
        pairs = overlay(stored, own, limit, reverse)
        (self.seen if snapshot else self.reads).ranges.append(range_read(begin, end, pairs, limit, reverse))
        return pairs

    async def confirm(self) -> None:
        self._check_age()
        await self._committer.confirm(self)

    async def commit(self) -> None:
        self._check_age()
        self._view = None
        self._ended = True
        if self.writes:
            self._check_size()
            await self._committer.commit(self)
        else:
            await self._committer.confirm(self)

    async def _reading(self) -> View:
        self._check_age()
        if self._arrive is not None:
            await self._arrive()
        assert self._view is not None, "the transaction has ended"
        return self._view


def scan_limit(limit: int, own: Writes) -> int:
    """The number of stored pairs to read: each own write hides at most one of them."""
    return limit + len(own) if limit else 0


def overlay(stored: list[Pair], own: Writes, limit: int, reverse: bool) -> list[Pair]:
    """The first pairs of the store with the transaction's own writes on top."""
    if not own:
        return stored
    pairs = [pair for pair in stored if pair[0] not in own]
    pairs += [(key, value) for key, value in own.items() if value is not None]
    pairs.sort(reverse=reverse)
    return pairs[:limit] if limit else pairs


def range_read(begin: bytes, end: bytes, pairs: list[Pair], limit: int, reverse: bool) -> tuple[bytes, bytes]:
    """The part of a range that a read depends on: a limited read depends on nothing beyond its last pair."""
    if limit and len(pairs) == limit:
        last = pairs[-1][0]
        return (last, end) if reverse else (begin, last + b"\0")
    return begin, end
