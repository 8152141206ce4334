"""Striping: which chain holds which byte of a file. Arithmetic only; meta service and client do the same sums.

A file takes `stripe` chains from its chain table, starting at `table_offset`, in an order shuffled by `seed`.
Chunk i lies on chain `table[(table_offset + permutation[i mod stripe]) mod len(table)]`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from threefs.errors import FileTooLarge, InvalidArgument, NotServing
from threefs.ids import ChainId, TableId
from threefs.wire import meta_pb2 as pb

MIN_CHUNK_BYTES = 64 << 10
MAX_CHUNK_BYTES = 64 << 20
DEFAULT_CHUNK_BYTES = 1 << 20
MAX_STRIPE = 4096
MAX_CHUNKS = (1 << 32) - 1  # a chunk's number is 32 bits on the wire
#: Not a chunk of the file: its length is the inode's fence, the highest number under which writes are refused. So it is
#: replicated, resynced and repaired like all others. It exists on each chain of the stripe, or on none.
FENCE_CHUNK = MAX_CHUNKS
#: No file is longer; small chunks lower it further, see `max_file_bytes`.
MAX_FILE_BYTES = 1 << 50

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How one file's bytes lie on chains. Never changes after the file was made."""

    chunk_bytes: int
    table_id: TableId
    stripe: int
    table_offset: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_chunk_bytes(self.chunk_bytes)
        if not 1 <= self.stripe <= MAX_STRIPE:
            raise InvalidArgument(f"a stripe has 1 to {MAX_STRIPE} chains, not {self.stripe}")
        if self.table_offset < 0 or not 0 <= self.seed <= _MASK:
            raise InvalidArgument("table offset and seed of a layout are not negative")

    @property
    def max_file_bytes(self) -> int:
        return max_file_bytes(self.chunk_bytes)

    def chains(self, table: Sequence[ChainId]) -> tuple[ChainId, ...]:
        """The chains of the stripe: chunk i lies on element `i mod stripe`. Raises NotServing for an empty table: one
        that the routing at hand does not have yet."""
        if not table:
            raise NotServing(f"chain table {self.table_id} is not in the routing yet")
        start, size = self.table_offset, len(table)
        return tuple(table[(start + place) % size] for place in permutation(self.seed, self.stripe))

    def chain_of(self, table: Sequence[ChainId], number: int) -> ChainId:
        """The chain of chunk `number`."""
        return self.chains(table)[number % self.stripe]


def from_wire(message: pb.Layout) -> FileLayout:
    return FileLayout(
        message.chunk_bytes, TableId(message.table_id), message.stripe, message.table_offset, message.seed
    )


def to_wire(layout: FileLayout) -> pb.Layout:
    return pb.Layout(
        chunk_bytes=layout.chunk_bytes,
        table_id=layout.table_id,
        stripe=layout.stripe,
        table_offset=layout.table_offset,
        seed=layout.seed,
    )


def check_chunk_bytes(chunk_bytes: int) -> None:
    """Raise InvalidArgument unless it is a power of two that the chunk engine has blocks for."""
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES or chunk_bytes & (chunk_bytes - 1):
        raise InvalidArgument(
            f"chunk size must be a power of two from {MIN_CHUNK_BYTES >> 10} KiB to {MAX_CHUNK_BYTES >> 20} MiB, "
            f"not {chunk_bytes} bytes"
        )


def max_file_bytes(chunk_bytes: int) -> int:
    """The most bytes that a file with this chunk size may have."""
    return min(MAX_FILE_BYTES, MAX_CHUNKS * chunk_bytes)


def check_range(chunk_bytes: int, offset: int, length: int) -> None:
    """Raise InvalidArgument or FileTooLarge unless a file may have the bytes [offset, offset + length)."""
    if offset < 0:
        raise InvalidArgument(f"offset must not be negative: {offset}")
    if length < 0:
        raise InvalidArgument(f"length must not be negative: {length}")
    if offset + length > max_file_bytes(chunk_bytes):
        raise FileTooLarge(f"byte {offset + length} is beyond the largest file ({max_file_bytes(chunk_bytes)} bytes)")


def spans(chunk_bytes: int, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Cut the bytes [offset, offset + length) at chunk boundaries: (chunk number, offset in chunk, length)."""
    end = offset + length
    while offset < end:
        within = offset & (chunk_bytes - 1)
        step = min(chunk_bytes - within, end - offset)
        yield offset // chunk_bytes, within, step
        offset += step


def chunk_count(chunk_bytes: int, length: int) -> int:
    """How many chunks a file of `length` bytes can have."""
    return -(-length // chunk_bytes)


def chains_reached(layout: FileLayout, end: int) -> int:
    """How many chains of the stripe, from its first, the bytes before `end` can lie on. At least one."""
    return max(1, min(layout.stripe, chunk_count(layout.chunk_bytes, end)))


def end_of(chunk_bytes: int, number: int, chunk_length: int) -> int:
    """The file offset behind the last byte of a chunk that holds `chunk_length` bytes."""
    return number * chunk_bytes + chunk_length


@lru_cache(maxsize=4096)
def permutation(seed: int, size: int) -> tuple[int, ...]:
    """A shuffle of range(size) that every version on every machine computes alike (Fisher-Yates over splitmix64)."""
    places = list(range(size))
    state = seed & _MASK
    for last in range(size - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        drawn = (_mix(state) * (last + 1)) >> 64
        places[last], places[drawn] = places[drawn], places[last]
    return tuple(places)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
