"""Scans of a table: its rows in the order of their keys, without the mark of the log (`wal_recovery.py`).

An iterator of RocksDB ends at a damaged block as it does behind the last row. Its status tells which it was.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rocksdict import Rdict, RdictIter, ReadOptions

from threefs.kv.engine_api import Pair
from threefs.kv.wal_recovery import MARK_KEY

#: Making another iterator takes as long as this many steps.
_STEPS = 96


def scan(store: Rdict, begin: bytes, end: bytes, limit: int, *, reverse: bool) -> list[Pair]:
    """The rows that the table has now. `end` must live as long as the call."""
    # An iterator with an upper bound does not step over removed rows beyond it. It keeps a pointer to the bytes of
    # `end`, not a copy.
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    if reverse:
        return backward(store.iter(options), begin, end, limit)
    if begin <= MARK_KEY < end:
        return forward(store.iter(options), begin, end, limit)
    pairs = forward(store.iter(options), begin, end, min(limit or _STEPS, _STEPS))
    if len(pairs) < _STEPS or len(pairs) == limit:
        return pairs
    # Many rows are read four times as fast through `items`, but only steps tell an end from damage.
    rows: Iterator[Any] = store.items(from_key=pairs[-1][0] + b"\0", read_opt=options)
    pairs += islice(rows, limit - len(pairs) if limit else None)
    if not limit or len(pairs) < limit:
        pairs += forward(store.iter(options), pairs[-1][0] + b"\0", end, limit - len(pairs) if limit else 0)
    return pairs


def forward(rows: RdictIter, begin: bytes, end: bytes, limit: int) -> list[Pair]:
    """The rows from `begin` on, step by step. Raises if the iterator has met damage."""
    pairs: list[Pair] = []
    rows.seek(begin)
    key: bytes | None
    while (key := rows.key()) is not None:
        if key >= end:
            return pairs
        if key != MARK_KEY:
            pairs.append((key, rows.value()))
            if len(pairs) == limit:
                return pairs
        rows.next()
    rows.status()
    return pairs


def backward(rows: RdictIter, begin: bytes, end: bytes, limit: int) -> list[Pair]:
    """The rows before `end`, the last one first. Raises if the iterator has met damage."""
    pairs: list[Pair] = []
    rows.seek_for_prev(end)
    while rows.valid():
        key: bytes = rows.key()
        if key < begin:
            return pairs
        if key < end and key != MARK_KEY:
            pairs.append((key, rows.value()))
            if len(pairs) == limit:
                return pairs
        rows.prev()
    rows.status()
    return pairs
