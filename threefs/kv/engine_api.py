"""The transactional key-value port that metadata and the manager are written against.

Keys and values are bytes. Transactions are serializable: a commit fails with `Conflict` if anything that the
transaction read (other than by snapshot reads) was changed since it began. What every engine keeps within:
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

MAX_KEY_BYTES = 10_000
MAX_VALUE_BYTES = 100_000
MAX_TRANSACTION_BYTES = 1_000_000
MAX_TRANSACTION_KEYS = 8_000  # that it writes, and as many that it depends on
MAX_TRANSACTION_SECONDS = 5.0

Pair = tuple[bytes, bytes]


class Transaction(Protocol):
    """One attempt. Reads see one state of the store, plus its own writes. Not to be shared between tasks.

    That state is at most as old as `begin()` and at most as young as the first read: a store that is far away is not
    asked before. What was noted by `add_read_conflict` alone counts from then on too.
    """

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None: ...

    async def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]: ...

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        """Pairs with begin <= key < end in key order (or reversed); limit 0 means all."""
        ...

    def add_read_conflict(self, key: bytes) -> None:
        """Conflict with whoever writes this key, as if it had been read."""
        ...

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None: ...

    def set(self, key: bytes, value: bytes) -> None: ...

    def clear(self, key: bytes) -> None: ...

    async def clear_range(self, begin: bytes, end: bytes, *, max_keys: int) -> bool:
        """Remove up to max_keys pairs; True when nothing is left in the range."""
        ...

    def savepoint(self) -> None:
        """What is written from here on can be taken back, until the next one."""
        ...

    def rollback(self) -> None:
        """Take back what was written since the last savepoint. What was read since then still counts as read."""
        ...

    async def confirm(self) -> None:
        """What has been read is durable when it returns; for an answer that is given without a commit."""
        ...

    async def commit(self) -> None:
        """Durable when it returns, and so is what was read. Ends the transaction.

        Raises Conflict, TooOld, Throttled, MaybeCommitted, TooLarge, NoSpace, Unavailable.
        """
        ...


@dataclass(slots=True)
class TransactionCounts:
    """How the transactions of this process ended; `threefs.kv.retry.run` counts."""

    committed: int = 0
    retried: Counter[str] = field(default_factory=Counter)  # that had to be tried again, by the name of the error


class Engine(Protocol):
    """A store. `threefs.kv.retry.run` is the usual way to use one."""

    transaction_counts: TransactionCounts

    #: It lies in this process: reads never wait, and a commit only to become durable.
    is_embedded: bool

    def begin(self) -> Transaction: ...

    async def close(self) -> None: ...


class DurableEngine(Engine, Protocol):
    """An engine that keeps its data, and can show a state of it for longer than others may change it."""

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> Transaction:
        """A longer lifetime is for transactions that only read; a store may still end them before."""
        ...
