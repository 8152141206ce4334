"""Preallocation of the write-ahead log of RocksDB, so that a sync need not store a new file length.

The sync of a file that has become longer also writes its new length through the journal of the file system, which is
about a third of the cost of the sync. So zeros are written ahead of the log, a piece at a time, and later records
replace them. Recovery treats zeros as room that was never used, and the store truncates them when it closes a log.

They are written a page at a time. The kernel keeps what comes in one call in one large folio, which is dirty as a whole
after each record: it would then count 256 KiB as written with each sync (`write_bytes` of /proc/PID/io), though the
disk gets only the blocks that have changed.

The zeros are written at the end of the file, where no record is. The caller makes sure that no record is written at the
same time.
"""

import os
from pathlib import Path

PIECE_BYTES = 256 << 10
_PAGE = bytes(4096)
_HEADERS_BYTES = 64  # of a record and its fragments, about


class WalPreallocator:
    """Keeps zeros ahead of the newest log of a store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = ""
        self._end = 0  # of the log, with the zeros
        self._left_bytes = 0  # of zeros, about; a new log has none

    def used(self, size_bytes: int) -> None:
        """A record of that size was written. Write more zeros if few are left."""
        self._left_bytes -= size_bytes + _HEADERS_BYTES
        if self._left_bytes < PIECE_BYTES:
            try:
                self._extend()
            except OSError:  # a full disk, or the log is gone: syncs are only slower without zeros
                self._left_bytes = 2 * PIECE_BYTES

    def _extend(self) -> None:
        log = max(self._directory.glob("[0-9]*.log"), key=lambda path: int(path.stem), default=None)
        if log is None:
            return
        descriptor = os.open(log, os.O_WRONLY)
        try:
            end = os.fstat(descriptor).st_size
            if (log.name, end) != (self._log, self._end):
                self._left_bytes = 0  # it is another log, or records went beyond the zeros
            self._log, self._end = log.name, _write_zeros(descriptor, end)
            self._left_bytes += self._end - end
        finally:
            os.close(descriptor)


def _write_zeros(descriptor: int, begin: int) -> int:
    """Write a piece of them from `begin` on. Returns where they end."""
    end, stop = begin, begin + PIECE_BYTES
    while end < stop:
        end += os.pwrite(descriptor, _PAGE[: min(len(_PAGE) - end % len(_PAGE), stop - end)], end)
    return end
