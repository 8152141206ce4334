"""Room on the disk that is held only to be given up.

On a disk that others have filled to the brim not even a record can be written, so no chunk could be removed to make
room. Then the ballast is dropped, and records have its room. A process that is started on such a disk could not even
open its records without it.
"""

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

    @property
    def allocated(self) -> bool:
        return self._room_bytes >= self._length_bytes

    async def allocate(self) -> bool:
        """Hold it, if the disk has so much room and as much again. Whether it is held."""
        if self.allocated:
            return True
        try:
            file = await self._open()
            if not self.allocated and self._disk.space(self._path.parent).free_bytes >= 2 * self._length_bytes:
                await file.allocate(0, self._length_bytes)
                self._room_bytes = self._length_bytes
        except NoSpace:
            pass  # later
        return self.allocated

    async def open_with_room(self, open_: Callable[[], Awaitable[T]]) -> T:
        """What `open_` opens, in the room of the ballast if there is no other. Raises NoSpace, and what it raises."""
        try:
            return await open_()
        except NoSpace as error:
            await self._open()
            if not self._room_bytes:
                raise
            _LOG.warning("the disk is full: the ballast is dropped", ballast=str(self._path), error=error.message)
            await self.release()
            return await open_()

    async def _open(self) -> File:
        if self._file is None:
            self._file = await self._disk.open(self._path)
            self._room_bytes = self._file.allocated()
        return self._file

    async def release(self) -> None:
        if self._file is not None and self._room_bytes:
            await self._file.release(0, self._length_bytes)
            self._room_bytes = 0

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()
