"""Room ahead in the log of RocksDB.

A sync of a file that has become longer writes its new length too, through the journal of the file system: that is about
a third of what the sync costs. So zeros are written where the log will go on, a piece at a time, and records replace
them. Recovery takes zeros for room that was never used, and the store cuts off what is left when it closes a log.

The zeros go behind the end of the file, wherever that is, and records never lie there. Who asks for room makes sure
that nobody writes to the log meanwhile.
"""

import os
from pathlib import Path

PIECE_BYTES = 256 << 10
_HEADS_BYTES = 64  # of a record and its fragments, about


class LogRoom:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = ""
        self._end = 0  # of the log, with the room
        self._left_bytes = 0  # about; a log that was begun meanwhile has none

    def used(self, size_bytes: int) -> None:
        """A record of that size was written. There is more room after it, if it was nearly used up."""
        self._left_bytes -= size_bytes + _HEADS_BYTES
        if self._left_bytes < PIECE_BYTES:
            try:
                self._extend()
            except OSError:  # a full disk, or the log is gone: it is only slower without
                self._left_bytes = 2 * PIECE_BYTES

    def _extend(self) -> None:
        log = max(self._directory.glob("[0-9]*.log"), key=lambda path: int(path.stem), default=None)
        if log is None:
            return
        descriptor = os.open(log, os.O_WRONLY)
        try:
            end = os.fstat(descriptor).st_size
            if (log.name, end) != (self._log, self._end):
                self._left_bytes = 0  # another log, or the room was not enough
            self._log, self._end = log.name, end + os.pwrite(descriptor, bytes(PIECE_BYTES), end)
            self._left_bytes += self._end - end
        finally:
            os.close(descriptor)
