"""The interface of the transactional key-value stores in which the meta services and the manager keep their records.

Keys and values are bytes. Transactions are serializable: a commit fails with `Conflict` if a key or range that the
transaction has read was changed since it began. Snapshot reads do not count. The limits below hold for every engine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

MAX_KEY_BYTES = 10_000
MAX_VALUE_BYTES = 100_000
MAX_TRANSACTION_BYTES = 1_000_000
MAX_TRANSACTION_KEYS = 8_000  # keys that it writes; as many keys and ranges again that it depends on
MAX_TRANSACTION_SECONDS = 5.0

Pair = tuple[bytes, bytes]


class Transaction(Protocol):
    """One attempt of a transaction, used by one task. Reads see one state of the store, with its own writes on top.

    The state is one between `begin()` and the first read, because a remote store is not asked before the first read.
    A key of `add_read_conflict` conflicts with writes after that state.
    """

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None: ...

    async def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]: ...

    async def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        """Pairs with begin <= key < end in key order (or reversed); limit 0 means all."""
        ...

    def add_read_conflict(self, key: bytes) -> None:
        """Conflict with every transaction that writes this key, as if it had been read."""
        ...

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None: ...

    def set(self, key: bytes, value: bytes) -> None: ...

    def clear(self, key: bytes) -> None: ...

    async def clear_range(self, begin: bytes, end: bytes, *, max_keys: int) -> bool:
        """Remove up to max_keys pairs; True when nothing is left in the range."""
        ...

    def savepoint(self) -> None:
        """Begin a part whose writes `rollback` can undo. It replaces the savepoint before."""
        ...

    def rollback(self) -> None:
        """Undo the writes since the last savepoint. Reads since then still count for conflicts."""
        ...

    async def confirm(self) -> None:
        """Return when everything that was read is durable. An answer that is given without a commit needs this."""
        ...

    async def commit(self) -> None:
        """End the transaction, and return when its writes and everything that it read are durable.

        Raises Conflict, TooOld, Throttled, MaybeCommitted, TooLarge, NoSpace, Unavailable.
        """
        ...


@dataclass(slots=True)
class TransactionCounts:
    """How the transactions of this process ended, as counted by `threefs.kv.retry.run`."""

    committed: int = 0
    retried: Counter[str] = field(default_factory=Counter)  # attempts that were repeated, by the name of the error


class Engine(Protocol):
    """A store. `threefs.kv.retry.run` is the usual way to use one."""

    transaction_counts: TransactionCounts

    #: The store is in this process: reads never wait, and a commit waits only until it is durable.
    is_embedded: bool

    @property
    def durable_change(self) -> int:
        """The number of the newest change that the disk has, which only rises; 0 if the store is not embedded."""
        ...

    def begin(self) -> Transaction: ...

    async def close(self) -> None: ...


class DurableEngine(Engine, Protocol):
    """An engine that keeps its data on disks, and that has transactions of a longer lifetime for reading."""

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> Transaction:
        """Begin a transaction. One that only reads may have a longer lifetime, but the store may end it earlier."""
        ...
