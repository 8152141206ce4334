"""The ballast: room on the disk that is allocated only to be released when the disk is full.

On a disk that other programs have filled, not even the record of a removal could be written, so no removal could make
room. Releasing the ballast makes room for records. Without it, a process that starts on such a disk could not even open
its records.

A disk may also take less than it says that it has room for, if there is a quota. So room can be tried here: behind the
ballast, in the same file, it is allocated and released.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog

from threefs.env.disk import Disk, File
from threefs.errors import NoSpace

T = TypeVar("T")
_LOG = structlog.get_logger()


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

    async def allocate(self) -> bool:
        """Allocate the ballast if the disk has room for two of it. Returns whether it is allocated."""
        if self.allocated:
            return True
        try:
            file = await self._open()
            if not self.allocated and self._disk.space(self._path.parent).free_bytes >= 2 * self._length_bytes:
                await file.allocate(0, self._length_bytes)
                self._room_bytes = self._length_bytes
        except NoSpace:
            pass  # a later call tries again
        return self.allocated

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
                try:
                    await file.allocate(self._length_bytes, length)
                finally:
                    await file.release(self._length_bytes, length)  # a refusal may leave a part
            except NoSpace:
                return False
            return True

    async def _open(self) -> File:
        async with self._opening:
            if self._file is None:
                self._file = await self._disk.open(self._path)
                if (rest := self._file.size() - self._length_bytes) > 0:
                    await self._file.release(self._length_bytes, rest)  # a crash came while room was tried
                self._room_bytes = self._file.allocated()
            return self._file

    async def release(self) -> None:
        if self._file is not None and self._room_bytes:
            await self._file.release(0, self._length_bytes)
            self._room_bytes = 0

    async def close(self) -> None:
        async with self._trying:
            self._closed = True
            if self._file is not None:
                await self._file.close()
