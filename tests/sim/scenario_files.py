"""Lines of scenarios that are about files, each of a client of its own.

put CLIENT PATH TEXT                    a file is written anew, and closed
get CLIENT PATH TEXT                    must see all of this in it; ~ is a byte 0
cut CLIENT PATH LENGTH                  the file is made so long
unlink CLIENT PATH
move CLIENT PATH PATH
open CLIENT PATH NAME                   for reading and writing, called NAME from now on
into NAME TEXT [OFFSET]                 written there, and flushed
holds NAME TEXT [OFFSET]                written, and not flushed
tries NAME TEXT [OFFSET]                the same, begun at once and called TEXT
close NAME
parts NAME                              the same, and an error of it is fine
covers CLIENT PATH                      no chunk has bytes behind the end of the file
lock NAME                               tried at once, begun as "lock NAME": done, or Locked
unlock NAME                             begun as "unlock NAME"
whole                                   every inode has its names, and every name its inode
"""

import contextlib
from collections.abc import Coroutine
from typing import Any

from threefs_client import AsyncFileSystem
from threefs_client.async_file import AsyncFile
from threefs_client.context import ClientContext

from tests.sim.files import namespace
from tests.sim.world import World
from threefs.errors import ThreefsError
from threefs.ids import InodeId

_CHUNK_BYTES = 64 << 10


class FileLines:
    """A part of `scenarios._Stage`."""

    _world: World

    def __init__(self) -> None:
        self._links: dict[str, ClientContext] = {}
        self._files: dict[str, tuple[str, AsyncFile]] = {}  # by name: the client that has it open

    async def _begin(self, client: str, name: str, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    async def _as(self, client: str, work: Coroutine[Any, Any, Any]) -> Any:
        return await self._world.processes[client].start(work)

    async def _put(self, client: str, path: str, text: str) -> None:
        async def put() -> None:
            fs = AsyncFileSystem(self._links[client])
            async with await fs.open(path, "wb", chunk_bytes=_CHUNK_BYTES) as file:
                await file.write(text.encode())

        await self._as(client, put())

    async def _get(self, client: str, path: str, text: str) -> None:
        async def get() -> bytes:
            async with await AsyncFileSystem(self._links[client]).open(path, "rb") as file:
                return await file.read()

        found = await self._as(client, get())
        assert found == text.replace("~", "\0").encode(), f"{client} finds {found!r} in {path}"

    async def _cut(self, client: str, path: str, length: str) -> None:
        async def cut() -> None:
            async with await AsyncFileSystem(self._links[client]).open(path, "r+b") as file:
                await file.truncate(int(length))

        await self._as(client, cut())

    async def _unlink(self, client: str, path: str) -> None:
        await self._as(client, AsyncFileSystem(self._links[client]).unlink(path))

    async def _move(self, client: str, path: str, other: str) -> None:
        await self._as(client, AsyncFileSystem(self._links[client]).rename(path, other))

    async def _open(self, client: str, path: str, name: str) -> None:
        file = await self._as(client, AsyncFileSystem(self._links[client]).open(path, "r+b"))
        self._files[name] = (client, file)

    async def _into(self, name: str, text: str, offset: str = "0") -> None:
        client, file = self._files[name]
        await self._as(client, _written(file, text, int(offset)))

    async def _holds(self, name: str, text: str, offset: str = "0") -> None:
        _, file = self._files[name]
        file.seek(int(offset))
        await file.write(text.encode())

    async def _whole(self) -> None:
        found = await namespace(self._world)
        assert not found, found

    async def _tries(self, name: str, text: str, offset: str = "0") -> None:
        client, file = self._files[name]
        await self._begin(client, text, _written(file, text, int(offset)))

    async def _close(self, name: str) -> None:
        client, file = self._files.pop(name)
        await self._as(client, file.close())

    async def _parts(self, name: str) -> None:
        with contextlib.suppress(ThreefsError):
            await self._close(name)

    async def _covers(self, client: str, path: str) -> None:
        async def ends() -> tuple[int, int]:
            link = self._links[client]
            async with await AsyncFileSystem(link).open(path, "rb") as file:
                handle = file.handle
                end = await link.chunks.file_length(handle.layout, InodeId(handle.inode), timeout_s=20.0)
                return handle.length, end

        length, end = await self._as(client, ends())
        assert length >= end, f"{path} has {length} bytes, and its chunks end at {end}"

    async def _lock(self, name: str) -> None:
        client, file = self._files[name]
        await self._begin(client, f"lock {name}", file.lock(wait_s=0.0))

    async def _unlock(self, name: str) -> None:
        client, file = self._files[name]
        await self._begin(client, f"unlock {name}", file.unlock())


async def _written(file: AsyncFile, text: str, offset: int) -> None:
    file.seek(offset)
    await file.write(text.encode())
    await file.flush()
