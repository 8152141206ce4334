"""Which pieces a load needs, and which rank reads each. Pure: every rank computes the same."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from threefs.errors import InvalidArgument, NotFound
from threefs_checkpoint.file_layout import pieces_of
from threefs_checkpoint.index import Index, StoredShard, Tensor
from threefs_checkpoint.slices import Slice, boxes, intersection

#: The slice that a rank loads of each tensor.
Wanted = Mapping[str, Slice]


class _Sized(Protocol):
    @property
    def length(self) -> int: ...


P = TypeVar("P", bound=_Sized)


class Piece(NamedTuple):
    """A piece of a shard, with whom it concerns."""

    tensor: Tensor
    shard: StoredShard
    first: int  # the number of its first element, in the shard
    elements: int  # how many
    offset: int  # in the data file, in bytes
    length: int  # bytes
    crc: int
    ranks: tuple[int, ...]  # that need some of it
    reader: int  # the one of them that reads it

    def boxes(self) -> Iterator[tuple[Slice, int]]:
        """Its elements as slices of the tensor, each with the number of its first element in the piece."""
        for box, number in boxes(self.shard.part.shape, self.first, self.first + self.elements):
            offset = tuple(start + at for start, at in zip(self.shard.part.offset, box.offset, strict=True))
            yield Slice(offset, box.shape), number - self.first


def check(index: Index, wanted: Wanted, where: str) -> None:
    """Raise NotFound for a tensor that the checkpoint does not have, InvalidArgument for a slice beyond its shape."""
    for name, part in wanted.items():
        tensor = index.tensors.get(name)
        if tensor is None:
            raise NotFound(f"{where} has no tensor {name!r}")
        if not isinstance(part, Slice):
            raise InvalidArgument(f"a part of tensor {name!r} is named by a Slice(offset, shape), not by {part!r}")
        if not part.within(tensor.shape):
            raise InvalidArgument(
                f"the slice from {list(part.offset)} to {list(part.end)} is not within tensor {name!r} of the shape "
                f"{list(tensor.shape)}"
            )


def pieces(index: Index, wanted: Sequence[Wanted]) -> list[Piece]:
    """All pieces of which some rank needs an element, each once, in the order of files and offsets. Each is read by the
    one of the ranks that need it which has fewest bytes to read so far."""
    found: list[Piece] = []
    load = [0] * len(wanted)
    for name in dict.fromkeys(name for each in wanted for name in each):
        tensor = index.tensors[name]
        needs = [(rank, each[name]) for rank, each in enumerate(wanted) if name in each]
        for shard in tensor.shards:
            near = [(rank, part) for rank, part in needs if intersection(part, shard.part) is not None]
            if near:
                found += _pieces(tensor, shard, near, index.chunk_bytes)
    found.sort(key=lambda piece: (piece.shard.file, piece.offset))
    for number, piece in enumerate(found):
        reader = min(piece.ranks, key=lambda rank: load[rank])
        load[reader] += piece.length
        found[number] = piece._replace(reader=reader)
    return found


def _pieces(
    tensor: Tensor, shard: StoredShard, needs: Sequence[tuple[int, Slice]], chunk_bytes: int
) -> Iterator[Piece]:
    itemsize = tensor.kind.itemsize
    everyone = tuple(rank for rank, _ in needs)
    every_element = all(intersection(part, shard.part) == shard.part for _, part in needs)
    for extent in pieces_of(shard, shard.part.size * itemsize, chunk_bytes):
        first, elements = (extent.offset - shard.offset) // itemsize, extent.length // itemsize
        piece = Piece(tensor, shard, first, elements, *extent, everyone, 0)
        if not every_element:
            ranks = tuple(rank for rank, part in needs if _has_some(piece, part))
            if not ranks:
                continue
            piece = piece._replace(ranks=ranks)
        yield piece


def _has_some(piece: Piece, part: Slice) -> bool:
    return any(intersection(box, part) is not None for box, _ in piece.boxes())


def rounds(found: Sequence[P], round_bytes: int) -> Iterator[list[P]]:
    """The pieces in portions that ranks read and pass on at a time."""
    portion, size = list[P](), 0
    for piece in found:
        if portion and size + piece.length > round_bytes:
            yield portion
            portion, size = [], 0
        portion.append(piece)
        size += piece.length
    if portion:
        yield portion


def place_in(piece: Piece, part: Slice) -> int | None:
    """The number of the element, in an array that holds `part` of the tensor, from which on the piece lies in it whole
    and in order; None if it does not."""
    held = piece.shard.part
    if held.shape[1:] != part.shape[1:] or held.offset[1:] != part.offset[1:]:
        return None
    if not held.shape:
        return 0
    row = Slice((), held.shape[1:]).size
    begin = piece.first + (held.offset[0] - part.offset[0]) * row
    return begin if begin >= 0 and begin + piece.elements <= part.size else None
