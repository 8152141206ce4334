"""The ballast: room on the disk that is allocated only to be released when the disk is full.

On a disk that other programs have filled, not even the record of a removal could be written, so no removal could make
room. Releasing the ballast makes room for records. Without it, a process that starts on such a disk could not even open
its records.

A disk may also take less than it says that it has room for, if there is a quota. So room can be tried here: behind the
ballast, in the same file, it is allocated and released. And what a table with a long log needs to be opened again is
held there, too: nobody sees a quota coming.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from threefs.env.disk import Disk, File
from threefs.errors import NoSpace

T = TypeVar("T")
BALLAST_FILE = "ballast"  # its name in the directory of a store
#: So much more is held than is needed now, because a log grows until the next look; in steps of the second size.
_AHEAD_BYTES = 8 << 20
_STEP_BYTES = 32 << 20
_LOG = structlog.get_logger()


class LoggedTable(Protocol):
    """The part of RecordStore that is used here."""

    async def room_to_open(self) -> int: ...
    async def shorten_log(self) -> None: ...


class Ballast:
    def __init__(self, path: Path, disk: Disk, length_bytes: int) -> None:
        self._path = path
        self._disk = disk
        self._length_bytes = length_bytes
        self._file: File | None = None
        self._room_bytes = 0
        self._opening = asyncio.Lock()
        self._trying = asyncio.Lock()  # the file is not closed meanwhile
        self._closed = False

    @property
    def allocated(self) -> bool:
        return self._room_bytes >= self._length_bytes

    @property
    def needed_bytes(self) -> int:
        """That must be free on the disk for the ballast to be allocated: room for two of it."""
        return 2 * self._length_bytes

    async def allocate(self) -> bool:
        """Allocate the ballast if the disk has the room that it needs. Returns whether it is allocated."""
        if self.allocated:
            return True
        try:
            file = await self._open()
            if not self.allocated and self._disk.space(self._path.parent).free_bytes >= self.needed_bytes:
                await self._grow(file, self._length_bytes)
        except NoSpace:
            pass  # a later call tries again
        return self.allocated

    async def limit_log(self, table: LoggedTable, *, is_nearly_full: bool) -> None:
        """Hold the room that the table needs to be opened again. If the disk is nearly full, or does not give so much,
        keep the log so short that the ballast does. Raises what the table raises."""
        needed = await table.room_to_open() + _AHEAD_BYTES
        if is_nearly_full or (self._length_bytes and needed > self._room_bytes and not await self._hold(needed)):
            if self._file is not None and (rest := self._room_bytes - self._length_bytes) > 0:
                await self._file.release(self._length_bytes, rest)
                self._room_bytes = self._length_bytes
            await table.shorten_log()

    async def _hold(self, length: int) -> bool:
        if self._file is None or not self.allocated:
            return False
        async with self._trying:
            try:
                await self._grow(self._file, -(-length // _STEP_BYTES) * _STEP_BYTES)
            except NoSpace:
                return False
        return True

    async def _grow(self, file: File, length: int) -> None:
        held = self._room_bytes
        try:
            await file.allocate(held, length - held)
        except NoSpace:
            await file.release(held, length - held)  # a part was allocated: all that the disk had left
            raise
        self._room_bytes = length

    async def open_with_room(self, open_: Callable[[], Awaitable[T]]) -> T:
        """The result of `open_`; if the disk is full, it is called again after the ballast is released. Raises NoSpace,
        and what `open_` raises."""
        try:
            return await open_()
        except NoSpace as error:
            await self._open()
            if not self._room_bytes:
                raise
            _LOG.warning("the disk is full: the ballast is released", ballast=str(self._path), error=error.message)
            await self.release()
            return await open_()

    async def takes(self, length: int) -> bool:
        """Whether the disk really takes that many bytes more. Not known of a store that is closed: True."""
        async with self._trying:
            if self._closed or length <= 0:
                return True
            try:
                file = await self._open()
                place = max(self._length_bytes, self._room_bytes)
                try:
                    await file.allocate(place, length)
                finally:
                    await file.release(place, length)  # a refusal may leave a part
            except NoSpace:
                return False
            return True

    async def _open(self) -> File:
        async with self._opening:
            if self._file is None:
                self._file = await self._disk.open(self._path)
                if (rest := self._file.size() - self._length_bytes) > 0:
                    await self._file.release(self._length_bytes, rest)  # of the process before
                self._room_bytes = self._file.allocated()
            return self._file

    async def release(self) -> None:
        if self._file is not None and self._room_bytes:
            await self._file.release(0, max(self._length_bytes, self._room_bytes))
            self._room_bytes = 0

    async def close(self) -> None:
        async with self._trying:
            self._closed = True
            if self._file is not None:
                await self._file.close()
