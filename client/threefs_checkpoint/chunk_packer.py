"""Cuts the content of a file at the boundaries of its chunks, so that each chunk is written by one write. Pure."""

from collections.abc import Iterable, Iterator

#: Offset in the file, bytes.
Piece = tuple[int, memoryview]

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
