"""The generation of a store: the number of its newest change of a chunk, by which an older copy of it is known (I15).

What a process writes of its own accord does not count: folds, the logical time, the place of the scrubber, versions of
the chain. The process of a copy that was refused writes these as well, and would bring the copy up to the generation of
the newest store.

The number is that of the change in the log of the table, in which everything counts. So a store in which nothing was
counted yet begins with the newest change of its table, which earlier releases have reported, and they report no less if
they come back. Such a release does not know the generation. But it notes each version of its chain before it acts in
it, and the generation is stored with the checksum of that note. So it is seen that it has gone on with the store, and
the store begins anew with the newest change.
"""

import struct
from collections import deque
from typing import Protocol

from threefs.checksums import crc32c

_ROW = struct.Struct(">QI")  # generation, CRC32C of the note of the chain


class CountedTable(Protocol):
    """What is read of threefs.kv.table.Table."""

    durable_change: int  # the newest change that survives a crash, counted since the table was made

    @property
    def change(self) -> int: ...


class Generation:
    """Of one opening of a store, by one process."""

    def __init__(self, table: CountedTable, row: bytes | None, chain_note: bytes) -> None:
        """`row` is what the table has of it, `chain_note` what it has noted of its chain."""
        self._table = table
        self._digest = crc32c(chain_note)
        known, digest = (0, 0) if row is None else _ROW.unpack(row)
        self.is_kept = row is not None and digest == self._digest  # else the next write, of whatever, brings it
        self._durable: int = known if self.is_kept else table.change
        self._newest = self._next = self._durable
        self._undurable: deque[int] = deque()  # those behind it, as far as is known

    @property
    def durable(self) -> int:
        """The newest one that survives a crash."""
        while self._undurable and self._undurable[0] <= self._table.durable_change:
            self._durable = self._undurable.popleft()
        return self._durable

    def next_row(self) -> bytes:
        """What the table is to have of it with the change that is written now. Raises what a failed table raises."""
        self._next = self._table.change + 1
        return _ROW.pack(self._next, self._digest)

    def row(self) -> bytes:
        """The same without a change that counts."""
        return _ROW.pack(self._newest, self._digest)

    def row_with(self, chain_note: bytes) -> bytes:
        """The same with this note."""
        self._digest = crc32c(chain_note)
        return self.row()

    def on_written(self, *, counts: bool) -> None:
        """Something was written, with the row if that was needed."""
        self.is_kept = True
        if counts:
            durable = self.durable  # only those that wait for a flush are left
            assert self._next > self._newest >= durable, "the generation only rises"
            self._newest = self._next
            self._undurable.append(self._next)
