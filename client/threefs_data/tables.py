"""Finds samples by their place in a shard, and reads the parts of tables that this needs."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from threefs_data import record_table, version_1
from threefs_data.format import DATA_START, Index
from threefs_data.page_cache import PageCache
from threefs_data.record_table import PAGE_BYTES

Integers = NDArray[np.int64]

#: Reads (shard, offset, length) rows.
ReadRanges = Callable[[list[tuple[int, int, int]]], Sequence[memoryview]]


class Tables(Protocol):
    def find(self, shards: Integers, places: Integers) -> tuple[Integers, Integers, Integers]:
        """Starts, lengths and checksums of the samples at each place in the shard beside it. Raises Corrupt."""
        ...


class _Pages:
    """Of the tables of one kind."""

    def __init__(self, index: Index, has_lengths: bool) -> None:
        self.has_lengths = has_lengths
        self.every = record_table.page_samples(has_lengths)
        counts = [
            record_table.pages(shard.samples, has_lengths) if shard.has_lengths == has_lengths else 0
            for shard in index.shards
        ]
        self.firsts = np.cumsum([0, *counts], dtype=np.int64)
        self.count = int(self.firsts[-1])


class PagedTables:
    """Version 2. At most `capacity_bytes` of pages are kept, or one page of each kind."""

    def __init__(self, index: Index, read: ReadRanges, name: Callable[[int], str], capacity_bytes: int) -> None:
        self._index = index
        self._read = read
        self._name = name
        self._sample_bytes = np.array([shard.sample_bytes for shard in index.shards], np.int64)
        self._has_lengths = np.array([shard.has_lengths for shard in index.shards], np.bool_)
        self._kinds = (_Pages(index, False), _Pages(index, True))
        total = sum(kind.count for kind in self._kinds) or 1
        self.caches = tuple(
            PageCache(record_table.columns(kind.has_lengths), kind.count, capacity_bytes * kind.count // total)
            for kind in self._kinds
        )

    def find(self, shards: Integers, places: Integers) -> tuple[Integers, Integers, Integers]:
        lengths = self._sample_bytes[shards]
        starts = DATA_START + places * lengths
        crcs = np.empty(len(places), np.int64)
        for pages, cache in zip(self._kinds, self.caches, strict=True):
            own = np.flatnonzero(self._has_lengths[shards] == pages.has_lengths)
            for first in range(0, len(own), cache.capacity):  # so the pages of one round fit into the cache
                part = own[first : first + cache.capacity]
                rows = self._rows(pages, cache, shards[part], places[part])
                entries = places[part] % pages.every
                crcs[part] = cache.values[rows, entries].astype(np.int64)
                if pages.has_lengths:
                    starts[part] = cache.values[rows, pages.every + entries].astype(np.int64)
                    lengths[part] = cache.values[rows, pages.every + entries + 1].astype(np.int64) - starts[part]
        return starts, lengths, crcs

    def _rows(self, pages: _Pages, cache: PageCache, shards: Integers, places: Integers) -> NDArray[np.intp]:
        """Where the cache has the pages of these samples. Reads those that it does not have."""
        wanted, inverse = np.unique(pages.firsts[shards] + places // pages.every, return_inverse=True)
        if missing := cache.missing(wanted.tolist()):
            cache.insert(missing, self._read_pages(pages, missing))
        found: NDArray[np.intp] = cache.rows(wanted.tolist())[inverse]
        return found

    def _read_pages(self, pages: _Pages, numbers: list[int]) -> NDArray[np.uint64]:
        shards = (np.searchsorted(pages.firsts, np.array(numbers), side="right") - 1).tolist()
        ends = [self._index.shards[shard].data_bytes for shard in shards]
        firsts = pages.firsts[shards].tolist()
        rows = [
            (shard, end + (number - first) * PAGE_BYTES, PAGE_BYTES)
            for number, shard, end, first in zip(numbers, shards, ends, firsts, strict=True)
        ]
        names = [self._name(shard) for shard in shards]
        return record_table.decode(self._read(rows), pages.has_lengths, ends, names)


class WholeTables:
    """Version 1: a table is read as a whole. Beyond `capacity_bytes`, those that no sample was found in are dropped."""

    def __init__(self, index: Index, read: ReadRanges, name: Callable[[int], str], capacity_bytes: int) -> None:
        self._index = index
        self._read = read
        self._name = name
        self._capacity_bytes = capacity_bytes
        self.tables: OrderedDict[int, version_1.Table] = OrderedDict()

    def find(self, shards: Integers, places: Integers) -> tuple[Integers, Integers, Integers]:
        needed = np.unique(shards).tolist()
        self._load(needed)
        starts, ends, crcs = np.empty((3, len(places)), np.int64)
        for shard in needed:
            own = np.flatnonzero(shards == shard)
            table = self.tables[shard]
            starts[own] = table.starts[places[own]]
            ends[own] = table.starts[places[own] + 1]
            crcs[own] = table.crcs[places[own]]
        return starts, ends - starts, crcs

    def _load(self, needed: list[int]) -> None:
        missing = [shard for shard in needed if shard not in self.tables]
        for shard in needed:
            if shard in self.tables:
                self.tables.move_to_end(shard)
        missed = ((number, self._index.shards[number]) for number in missing)
        rows = [(number, shard.data_bytes, version_1.table_bytes(shard)) for number, shard in missed]
        for number, view in zip(missing, self._read(rows) if rows else [], strict=True):
            self.tables[number] = version_1.decode_table(bytes(view), self._index.shards[number], self._name(number))
        kept = sum(table.nbytes for table in self.tables.values()) if missing else 0
        while kept > self._capacity_bytes and len(self.tables) > len(needed):
            kept -= self.tables.popitem(last=False)[1].nbytes
