"""The handle of a program on an open file of the mount: whether it may write, and which errors it need not report."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from threefs.env.shielded_wait import shielded
from threefs.errors import LockLost, ThreefsError
from threefs_mount.files.flush_deadline import FlushDeadline
from threefs_mount.files.open_file import OpenFile


@dataclass(slots=True)
class OpenHandle:
    """An open file description of a program. Descriptors that `dup` and `fork` make share it."""

    file: OpenFile
    writable: bool
    appends: bool
    errors_seen: int  # the count of write errors that it need not report, see threefs_client/data/errseq.py
    flush_deadline: FlushDeadline
    lock_lost: bool = False  # a lock on the file was lost while it was open

    def check_lock(self) -> None:
        """Raises LockLost."""
        if self.lock_lost:
            raise LockLost("a lock on the file was lost with the lease of the mount: open the file again")

    async def sync(self, *, only_data: bool = False) -> None:
        """For fsync, and with `only_data` for fdatasync: make all writes durable. Raises an error that this handle has
        not reported yet, which counts as reported then."""
        failure = await self._sync_file(only_data=only_data)
        self.errors_seen, unreported = self.file.errors.check_and_advance(self.errors_seen)
        self.check_lock()
        _raise_first(unreported, failure)

    async def flush(self, is_ending: Callable[[], bool] = lambda: False) -> None:
        """For close: the same, but the error does not count as reported. `is_ending` says whether the kernel closes the
        file because its program ends: then nobody gets the error, see flush_deadline.py."""
        self.flush_deadline.check(self.file, is_ending)
        failure = await self._sync_file()
        self.check_lock()
        _raise_first(self.file.errors.check(self.errors_seen), failure)

    async def sync_quietly(self) -> None:
        """Make writes durable as far as possible. `sync` and `flush` report what was lost."""
        await self._sync_file()

    async def _sync_file(self, *, only_data: bool = False) -> ThreefsError | None:
        """Cancelling the call does not stop the sync. The file's errors record what is lost in any case."""
        sync = partial(self.file.sync, only_data=only_data)
        try:
            await shielded(asyncio.ensure_future(self.flush_deadline.sync(self.file, sync)))
        except ThreefsError as error:
            return error
        return None

    @property
    def needs_flush(self) -> bool:
        """`flush` has something to do or to report."""
        return self.lock_lost or self.file.dirty or self.file.errors.check(self.errors_seen) is not None


def _raise_first(*errors: Exception | None) -> None:
    for error in errors:
        if error is not None:
            raise error
