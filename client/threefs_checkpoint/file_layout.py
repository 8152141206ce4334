"""Where the shards of a rank lie in its data file, and what each chunk of the file holds. Pure: no I/O here."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from threefs.checksums import append, crc32c
from threefs_checkpoint.index import ALIGNMENT_BYTES, StoredShard, piece_count


def lay_out(sizes: Sequence[int], chunk_bytes: int) -> tuple[list[int], int]:
    """The offset of each shard of so many bytes, and the length of the file. Shards of at least a chunk come first and
    begin on a chunk boundary; smaller ones share chunks."""
    offsets = [0] * len(sizes)
    end = 0
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number] < chunk_bytes):
        multiple = chunk_bytes if sizes[number] >= chunk_bytes else ALIGNMENT_BYTES
        offsets[number] = -(-end // multiple) * multiple
        end = offsets[number] + sizes[number]
    return offsets, end


class Fill(NamedTuple):
    """Bytes of a shard that lie in one chunk."""

    at: int  # in the chunk
    shard: int  # its number
    begin: int  # in the shard
    length: int


class ChunkPlan(NamedTuple):
    number: int  # of the chunk in the file
    length: int
    fills: list[Fill]  # in order; what is between them is zero


def chunk_plans(offsets: Sequence[int], sizes: Sequence[int], chunk_bytes: int) -> Iterator[ChunkPlan]:
    """The chunks of a file that is laid out so, in order."""
    number, fills = 0, list[Fill]()
    for shard in sorted(range(len(sizes)), key=lambda shard: offsets[shard]):
        begin = 0
        while begin < sizes[shard]:
            chunk, at = divmod(offsets[shard] + begin, chunk_bytes)
            if fills and chunk != number:
                yield ChunkPlan(number, _end_in_chunk(fills, chunk_bytes, last=False), fills)
                fills = []
            number = chunk
            fills.append(Fill(at, shard, begin, min(chunk_bytes - at, sizes[shard] - begin)))
            begin += fills[-1].length
    if fills:
        yield ChunkPlan(number, _end_in_chunk(fills, chunk_bytes, last=True), fills)


def _end_in_chunk(fills: Sequence[Fill], chunk_bytes: int, *, last: bool) -> int:
    """All chunks but the last are written whole, so that what is between shards is zeros and no hole."""
    return fills[-1].at + fills[-1].length if last else chunk_bytes


class Extent(NamedTuple):
    """Bytes of a file with a known checksum."""

    offset: int
    length: int
    crc: int


def pieces_of(shard: StoredShard, nbytes: int, chunk_bytes: int) -> Iterator[Extent]:
    """The pieces of a shard, as they lie in its file."""
    at, end = shard.offset, shard.offset + nbytes
    assert len(shard.crcs) == piece_count(at, nbytes, chunk_bytes), "every piece has a checksum"
    for crc in shard.crcs:
        stop = min(end, (at // chunk_bytes + 1) * chunk_bytes)
        yield Extent(at, stop - at, crc)
        at = stop


def chunk_checksums(pieces: Iterable[Extent], file_bytes: int, chunk_bytes: int) -> list[tuple[int, int, int]]:
    """(number, length, CRC32C) of each chunk of a file with these pieces and zeros between them.

    No content is needed: checksums of neighbours are combined. Raises ValueError if pieces overlap or leave a chunk
    out, as those of no layout do.
    """
    found: list[tuple[int, int, int]] = []
    end = crc = 0  # of the chunk that is being put together
    for piece in sorted(pieces):
        number, at = divmod(piece.offset, chunk_bytes)
        if end and number == len(found) + 1:
            found.append((len(found), chunk_bytes, _with_zeros(crc, end, chunk_bytes)))
            end = crc = 0
        if number != len(found) or at < end:
            raise ValueError(f"the bytes from {piece.offset} on overlap others, or a chunk before them has none")
        crc = append(_with_zeros(crc, end, at), piece.crc, piece.length)
        end = at + piece.length
    if file_bytes != len(found) * chunk_bytes + end:
        raise ValueError(f"the pieces do not end with the file, at {file_bytes} bytes")
    if end:
        found.append((len(found), end, crc))
    return found


def _with_zeros(crc: int, end: int, length: int) -> int:
    """The checksum of bytes that are filled up with zeros to `length`."""
    return append(crc, crc32c(bytes(length - end)), length - end) if length > end else crc
