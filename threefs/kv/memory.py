"""The memory engine, for tests and simulations. It can make commits fail as those of real stores do."""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import Random
from threefs.errors import Conflict, MaybeCommitted
from threefs.kv.conflicts import History
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, Pair, TransactionCounts
from threefs.kv.transaction import BufferedTransaction

_WINDOW_S = 2 * MAX_TRANSACTION_SECONDS  # longer than a transaction lives, so a transaction is too old by its age alone


class MemoryEngine:
    """A store in memory. It keeps the versions of each key that a live transaction may still read.

    With `random`, a share `conflict_rate` of the writing commits fails with Conflict, and a share `unknown_rate`
    with MaybeCommitted. Half of the latter are applied.
    """

    is_embedded = False
    durable_change = 0

    def __init__(
        self,
        *,
        random: Random | None = None,
        conflict_rate: float = 0.0,
        unknown_rate: float = 0.0,
        clock: Clock = CLOCK,
    ) -> None:
        assert random is not None or conflict_rate == unknown_rate == 0.0, "injection needs a source of randomness"
        self.transaction_counts = TransactionCounts()
        self._random = random
        self._conflict_rate = conflict_rate
        self._unknown_rate = unknown_rate
        self._clock = clock
        self._history = History(_WINDOW_S)
        self._table = VersionedTable()
        self._changes: deque[tuple[float, int, bytes]] = deque()  # (moment, version, key), oldest first

    @property
    def version(self) -> int:
        """The number of commits. While it stays the same, the content does."""
        return self._history.version

    def begin(self) -> BufferedTransaction:
        version = self.version
        return BufferedTransaction(self, _At(self._table, version), version, self._clock)

    async def close(self) -> None:
        """Nothing to release."""

    async def arrive(self) -> None:
        await asyncio.sleep(0)  # transactions interleave at every read, as they do over a network

    async def confirm(self, attempt: BufferedTransaction) -> None:
        await asyncio.sleep(0)

    async def commit(self, attempt: BufferedTransaction) -> None:
        await asyncio.sleep(0)
        if self._history.newest(attempt.reads, attempt.version) > attempt.version:
            raise Conflict
        if self._happens(self._conflict_rate):
            raise Conflict("injected")
        unknown = self._happens(self._unknown_rate)
        if not unknown or self._happens(0.5):
            self._apply(attempt)
        if unknown:
            raise MaybeCommitted("injected")

    def _happens(self, rate: float) -> bool:
        return rate > 0.0 and self._random is not None and self._random.uniform(0.0, 1.0) < rate

    def _apply(self, attempt: BufferedTransaction) -> None:
        now = self._clock.monotonic()
        version = self._history.record(attempt.writes.keys(), now)
        for key, value in attempt.writes.items():
            self._table.put(key, version, value)
            self._changes.append((now, version, key))
        while self._changes[0][0] < now - _WINDOW_S:
            _, old, key = self._changes.popleft()
            self._table.forget_before(key, old)


class VersionedTable:
    """Ordered keys, each with its values by version. A removed key has the value None until it is forgotten."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, list[tuple[int, bytes | None]]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: bytes, version: int, value: bytes | None) -> None:
        values = self._values.get(key)
        if values is None:
            insort(self._keys, key)
            values = self._values[key] = []
        values.append((version, value))

    def get(self, key: bytes, version: int) -> bytes | None:
        for written, value in reversed(self._values.get(key, ())):
            if written <= version:
                return value
        return None

    def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool, version: int) -> list[Pair]:
        first, last = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        pairs: list[Pair] = []
        for place in range(last - 1, first - 1, -1) if reverse else range(first, last):
            key = self._keys[place]
            value = self.get(key, version)
            if value is not None:
                pairs.append((key, value))
                if len(pairs) == limit:
                    break
        return pairs

    def forget_before(self, key: bytes, version: int) -> None:
        """Drop the values of `key` that only versions before `version` show."""
        values = self._values.get(key)
        if values is None:
            return
        while len(values) > 1 and values[1][0] <= version:
            del values[0]
        if len(values) == 1 and values[0][1] is None and values[0][0] <= version:
            del self._values[key]
            del self._keys[bisect_left(self._keys, key)]


class _At:
    def __init__(self, table: VersionedTable, version: int) -> None:
        self._table = table
        self._version = version

    def get(self, key: bytes) -> bytes | None:
        return self._table.get(key, self._version)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._table.get(key, self._version) for key in keys]

    def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]:
        return self._table.scan(begin, end, limit, reverse, self._version)
