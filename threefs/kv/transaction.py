"""The transaction of the built-in engines: writes wait in memory, reads are noted, the engine judges at commit."""

from collections.abc import Callable, Sequence
from typing import Protocol

from threefs.env.clock import Clock
from threefs.errors import InvalidArgument, TooLarge, TooOld
from threefs.kv.conflicts import Reads
from threefs.kv.port import MAX_KEY_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_SECONDS, MAX_VALUE_BYTES, Pair

Writes = dict[bytes, bytes | None]  # None removes the key


class View(Protocol):
    """The store as it was at one version."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]: ...


class Committer(Protocol):
    """What a transaction needs from its engine."""

    async def arrive(self) -> None:
        """Runs before every read, so that an engine can let others run or refuse."""
        ...

    async def commit(self, attempt: "BufferedTransaction") -> None: ...

    async def confirm(self, attempt: "BufferedTransaction") -> None: ...


class BufferedTransaction:
    def __init__(self, committer: Committer, view: View, version: int, clock: Clock) -> None:
        self.version = version  # of the store that the view shows
        self.reads = Reads()  # a later commit that changed one of these is a conflict
        self.seen = Reads()  # snapshot reads
        self.writes: Writes = {}
        self._committer = committer
        self._view: View | None = view
        self._now: Callable[[], float] = clock.monotonic
        self._ends = self._now() + MAX_TRANSACTION_SECONDS

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        view = await self._reading()
        if key in self.writes:
            return self.writes[key]
        (self.seen if snapshot else self.reads).points.add(key)
        return view.get(key)

    async def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        return [await self.get(key, snapshot=snapshot) for key in keys]

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        if limit < 0:
            raise InvalidArgument(f"limit {limit} is negative")
        view = await self._reading()
        if begin >= end:
            return []
        pairs = self._merged(view, begin, end, limit, reverse)
        if limit and len(pairs) == limit:  # nothing beyond the last pair was looked at
            last = pairs[-1][0]
            begin, end = (last, end) if reverse else (begin, last + b"\0")
        (self.seen if snapshot else self.reads).ranges.append((begin, end))
        return pairs

    def add_read_conflict(self, key: bytes) -> None:
        self.reads.points.add(key)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        self.reads.ranges.append((begin, end))

    def set(self, key: bytes, value: bytes) -> None:
        if len(value) > MAX_VALUE_BYTES:
            raise TooLarge(f"a value of {len(value)} bytes is larger than {MAX_VALUE_BYTES}")
        self._write(key, value)

    def clear(self, key: bytes) -> None:
        self._write(key, None)

    async def clear_range(self, begin: bytes, end: bytes, *, max_keys: int) -> bool:
        if max_keys < 1:
            raise InvalidArgument(f"max_keys {max_keys} is less than 1")
        pairs = await self.get_range(begin, end, limit=max_keys + 1)
        for key, _ in pairs[:max_keys]:
            self.clear(key)
        return len(pairs) <= max_keys

    async def confirm(self) -> None:
        self._check_age()
        await self._committer.confirm(self)

    async def commit(self) -> None:
        self._check_age()
        self._view = None
        if self.writes:
            self._check_size()
            await self._committer.commit(self)
        else:
            await self._committer.confirm(self)

    def _write(self, key: bytes, value: bytes | None) -> None:
        assert self._view is not None, "the transaction has ended"
        if len(key) > MAX_KEY_BYTES:
            raise TooLarge(f"a key of {len(key)} bytes is larger than {MAX_KEY_BYTES}")
        self.writes[key] = value

    async def _reading(self) -> View:
        self._check_age()
        await self._committer.arrive()
        assert self._view is not None, "the transaction has ended"
        return self._view

    def _check_age(self) -> None:
        if self._now() > self._ends:
            raise TooOld(f"the transaction lived longer than {MAX_TRANSACTION_SECONDS} s")

    def _check_size(self) -> None:
        size = self.reads.size_bytes()
        for key, value in self.writes.items():
            size += len(key) + (len(value) if value is not None else 0)
        if size > MAX_TRANSACTION_BYTES:
            raise TooLarge(f"a transaction of {size} bytes is larger than {MAX_TRANSACTION_BYTES}")

    def _merged(self, view: View, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]:
        """Pairs of the view under the transaction's own writes."""
        own = {key: value for key, value in self.writes.items() if begin <= key < end}
        if not own:
            return view.scan(begin, end, limit, reverse)
        # Each own write hides at most one stored pair, so this many are enough for `limit` visible ones.
        stored = view.scan(begin, end, limit + len(own) if limit else 0, reverse)
        pairs = [pair for pair in stored if pair[0] not in own]
        pairs += [(key, value) for key, value in own.items() if value is not None]
        pairs.sort(reverse=reverse)
        return pairs[:limit] if limit else pairs
