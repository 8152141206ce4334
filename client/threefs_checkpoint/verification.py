"""Whether storage has what a checkpoint's index says. The checksums that storage has recorded are compared; the bytes
are read only where the chunks of a file are not those of the index."""

from collections.abc import Iterable, Sequence

from threefs.checksums import crc32c
from threefs.errors import Corrupt
from threefs_checkpoint.file_layout import Extent, chunk_checksums, pieces_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index, data_name

_BATCH_BYTES = 64 << 20


def pieces_by_file(index: Index) -> list[list[Extent]]:
    """The pieces of each data file."""
    found: list[list[Extent]] = [[] for _ in index.file_bytes]
    for tensor in index.tensors.values():
        for shard in tensor.shards:
            nbytes = shard.part.size * tensor.kind.itemsize
            found[shard.file] += pieces_of(shard, nbytes, index.chunk_bytes)
    return found


def verify(fs: FileSystem, path: str, index: Index) -> None:
    """Raise Corrupt, which names the file, unless every data file is as the index says; NotFound if one is missing."""
    for number, pieces in enumerate(pieces_by_file(index)):
        if pieces:
            verify_file(fs, f"{path}/{data_name(number)}", pieces, index.file_bytes[number], index.chunk_bytes)


def verify_file(fs: FileSystem, path: str, pieces: Sequence[Extent], length: int, chunk_bytes: int) -> None:
    """The same for one file with these pieces."""
    found = fs.stat(path)
    if found.length != length:
        raise Corrupt(f"{path} has {found.length} bytes, and the index says {length}")
    try:
        expected = chunk_checksums(pieces, length, chunk_bytes)
    except ValueError as error:
        raise Corrupt(f"the index of {path} is not valid: {error}") from None
    if found.layout.chunk_bytes != chunk_bytes:  # a copy of the checkpoint
        _read_back(fs, path, pieces)
        return
    (recorded,) = fs.chunk_checksums([path])
    _compare(path, expected, [tuple(chunk) for chunk in recorded])


def verify_content(fs: FileSystem, path: str, content: bytes) -> None:
    """Raise Corrupt unless storage has recorded the checksums of this content."""
    found = fs.stat(path)
    chunk_bytes = found.layout.chunk_bytes
    parts = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    if found.length != len(content):
        raise Corrupt(f"{path} has {found.length} bytes, and {len(content)} were written")
    (recorded,) = fs.chunk_checksums([path])
    expected = [(number, len(part), crc32c(part)) for number, part in enumerate(parts)]
    _compare(path, expected, [tuple(chunk) for chunk in recorded])


def _compare(path: str, expected: Sequence[tuple[int, ...]], recorded: Sequence[tuple[int, ...]]) -> None:
    by_number = {chunk[0]: chunk for chunk in recorded}
    for chunk in expected:
        if (found := by_number.pop(chunk[0], None)) != chunk:
            number, length, crc = chunk
            storage = "does not have it" if found is None else f"has {found[1]} bytes with {found[2]:08x}"
            raise Corrupt(
                f"chunk {number} of {path} must have {length} bytes with the checksum {crc:08x}: storage {storage}"
            )
    if by_number:
        raise Corrupt(f"{path} has a chunk {min(by_number)} that the index does not know")


def _read_back(fs: FileSystem, path: str, pieces: Iterable[Extent]) -> None:
    for batch in _batches(pieces):
        views = fs.read_batch([(path, piece.offset, piece.length) for piece in batch])
        for piece, view in zip(batch, views, strict=True):
            if len(view) != piece.length or crc32c(view) != piece.crc:
                raise Corrupt(f"{path}: the {piece.length} bytes at {piece.offset} do not match their checksum")


def _batches(pieces: Iterable[Extent]) -> Iterable[list[Extent]]:
    batch, size = list[Extent](), 0
    for piece in pieces:
        if batch and size + piece.length > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.length
    if batch:
        yield batch
