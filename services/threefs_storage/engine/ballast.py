"""Room on the disk that is held only to be given up.

On a disk that others have filled to the brim not even a record can be written, so no chunk could be removed to make
room. Then the ballast is dropped, and records have its room.
"""

from pathlib import Path

from threefs.env.disk import Disk, File
from threefs.errors import NoSpace


class Ballast:
    def __init__(self, path: Path, disk: Disk, length_bytes: int) -> None:
        self._path = path
        self._disk = disk
        self._length_bytes = length_bytes
        self._file: File | None = None
        self._room_bytes = 0

    @property
    def held(self) -> bool:
        return self._room_bytes >= self._length_bytes

    async def take(self) -> bool:
        """Hold it, if the disk has so much room and as much again. Whether it is held."""
        if self.held:
            return True
        try:
            if self._file is None:
                self._file = await self._disk.open(self._path)
                self._room_bytes = self._file.allocated()
            if not self.held and self._disk.space(self._path.parent).free_bytes >= 2 * self._length_bytes:
                await self._file.allocate(0, self._length_bytes)
                self._room_bytes = self._length_bytes
        except NoSpace:
            pass  # later
        return self.held

    async def drop(self) -> None:
        if self._file is not None and self._room_bytes:
            await self._file.release(0, self._length_bytes)
            self._room_bytes = 0

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()
