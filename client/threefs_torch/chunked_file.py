"""Writes a file in whole chunks, each by one write, and in batches, one of which is on its way at a time."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from threefs_client import FileSystem

from threefs.env import loop_thread

#: Offset in the file, bytes.
Piece = tuple[int, memoryview]

#: Open file, offset, content.
Row = tuple[Any, int, memoryview]

#: Of small contents in the file.
ALIGNMENT_BYTES = 64


class ChunkPacker:
    """Contents follow each other in the file. One of at least a chunk begins on a chunk boundary, and its whole chunks
    are written from where they are; smaller ones are put together, by a copy."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._end = 0
        self._shared = bytearray()  # the chunk that is being put together, as far as it is filled
        self._shared_at = 0

    def place(self, size: int) -> int:
        """The offset of the next content of `size` bytes."""
        alignment = self._chunk_bytes if size >= self._chunk_bytes else ALIGNMENT_BYTES
        offset = -(-self._end // alignment) * alignment
        self._end = offset + size
        return offset

    def add(self, offset: int, content: memoryview) -> Iterator[Piece]:
        """The pieces that are complete with this content. It may be a part of what was placed; offsets only rise."""
        while content:
            size = min(len(content), self._chunk_bytes - offset % self._chunk_bytes)
            if self._shared and offset // self._chunk_bytes != self._shared_at // self._chunk_bytes:
                yield from self.rest()
            if size == self._chunk_bytes:
                yield offset, content[:size]
            else:
                self._share(offset, content[:size])
            offset, content = offset + size, content[size:]

    def rest(self) -> Iterator[Piece]:
        """The part of a chunk that is not full yet, if there is one."""
        if self._shared:
            piece = self._shared_at, memoryview(self._shared)
            self._shared = bytearray()
            yield piece

    def _share(self, offset: int, content: memoryview) -> None:
        if not self._shared:
            self._shared_at = offset
        self._shared += bytes(offset - self._shared_at - len(self._shared))
        self._shared += content


def batches(pieces: Iterable[Piece], limit_bytes: int) -> Iterator[list[Piece]]:
    """Lists of pieces, each of at least `limit_bytes` except the last, and of less than one piece more."""
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece[1])
        if size >= limit_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class BatchSender:
    """Sends batches of writes in the background. The memory of a batch must not change until the next `send` returns.
    The end of the `with` block waits until everything is durable. An error of a batch is raised by the next call, and
    ends the block."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._task: asyncio.Task[int] | None = None

    def send(self, rows: Sequence[Row]) -> None:
        """Begin to send a batch, when the one before it is durable."""
        loop_thread.run(self._send(rows))

    async def _send(self, rows: Sequence[Row]) -> None:
        core = await self._fs.connected()
        await self._settle()
        self._task = asyncio.ensure_future(core.write_batch(rows))

    async def _settle(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _abandon(self) -> None:
        """After this nothing reads the memory of the caller."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def __enter__(self) -> "BatchSender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work: Coroutine[Any, Any, None] = self._settle() if error is None else self._abandon()
        loop_thread.run(work)
