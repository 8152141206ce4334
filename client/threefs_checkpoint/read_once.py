"""Loads a file of tensors into all ranks of a job: each byte is read from storage by one rank, which passes it on."""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from threefs_checkpoint import load_plan
from threefs_checkpoint.dtypes import bytes_of
from threefs_checkpoint.group import Group
from threefs_checkpoint.loading import ROUND_BYTES, LoadReport, agree
from threefs_checkpoint.safetensors_format import Header
from threefs_checkpoint.tensor_file import KnownHeader, TensorFile

#: The most bytes that a rank reads and passes on in one piece. Small tensors share pieces.
PIECE_BYTES = 8 << 20

_INODE = struct.Struct("<Q")

T = TypeVar("T")


class OpenFile(Protocol[T]):
    """Opens the file on this rank; `known` is what rank 0 has read of it."""

    def __call__(self, *, known: KnownHeader | None = None) -> TensorFile[T]: ...


class Part(NamedTuple):
    """Some bytes of a tensor."""

    tensor: str
    begin: int
    length: int


class Piece(NamedTuple):
    """Some bytes of a file."""

    offset: int
    length: int
    parts: tuple[Part, ...]
    reader: int  # the rank that reads it


def pieces(header: Header, world: int, piece_bytes: int) -> list[Piece]:
    """All bytes of all tensors, each once, in the order of the file. Each is read by the rank that has least to read so
    far."""
    load = [0] * world
    found = []
    for offset, parts in _extents(header, piece_bytes):
        reader = min(range(world), key=load.__getitem__)
        length = sum(part.length for part in parts)
        load[reader] += length
        found.append(Piece(offset, length, tuple(parts), reader))
    return found


def _extents(header: Header, piece_bytes: int) -> Iterator[tuple[int, list[Part]]]:
    """A tensor of at least half a piece has pieces of its own, which need no copy."""
    start, parts, size = 0, list[Part](), 0
    for name, info in header.tensors.items():
        is_large = info.nbytes >= piece_bytes // 2
        if parts and (is_large or size + info.nbytes > piece_bytes):
            yield start, parts
            parts, size = [], 0
        if is_large:
            for begin in range(0, info.nbytes, piece_bytes):
                yield info.offset + begin, [Part(name, begin, min(piece_bytes, info.nbytes - begin))]
        elif info.nbytes:
            start = start if parts else info.offset
            parts.append(Part(name, 0, info.nbytes))
            size += info.nbytes
    if parts:
        yield start, parts


def load(
    open_file: OpenFile[T],
    group: Group,
    report: LoadReport | None = None,
    *,
    piece_bytes: int = PIECE_BYTES,
    round_bytes: int = ROUND_BYTES,
) -> dict[str, T]:
    """All tensors. Every rank of the group calls it. `round_bytes` is what the ranks together read at a time.

    Raises what reading raises, and Unavailable where another rank has failed.
    """
    with _open_on_all(open_file, group) as file:
        tensors: dict[str, T] = {}
        memory: dict[str, memoryview] = {}

        def allocate() -> None:
            for name, info in file.header.tensors.items():
                tensors[name], array = file.empty(name, info, info.shape)
                memory[name] = bytes_of(array)

        agree(group, allocate)
        received = 0
        for portion in load_plan.rounds(pieces(file.header, group.world, piece_bytes), round_bytes):
            received += _load_portion(file, group, portion, memory)
        if report is not None:
            report.bytes_read += file.bytes_read
            report.bytes_received += received
    return tensors


def _open_on_all(open_file: OpenFile[T], group: Group) -> TensorFile[T]:
    """Rank 0 reads the header. The others open the same file, also while another one takes its name."""
    opened: list[TensorFile[T]] = []
    try:
        agree(group, lambda: opened.append(open_file()) if group.rank == 0 else None)
        known = _from_rank_0(opened[0].known if opened else None, group)
        agree(group, lambda: None if opened else opened.append(open_file(known=known)))
    except BaseException:
        for file in opened:
            file.close()
        raise
    return opened[0]


def _from_rank_0(own: KnownHeader | None, group: Group) -> KnownHeader:
    message = group.from_rank_0(b"" if own is None else _INODE.pack(own.inode) + own.content)
    (inode,) = _INODE.unpack_from(message)
    return KnownHeader(inode, message[_INODE.size :])


def _load_portion(file: TensorFile[T], group: Group, portion: list[Piece], memory: dict[str, memoryview]) -> int:
    """Read, pass on and put in place. Returns how many bytes came from other ranks."""
    places = [_place(piece, memory) for piece in portion]
    rows = list(zip(portion, places, strict=True))
    own = [(piece.offset, place) for piece, place in rows if piece.reader == group.rank]
    agree(group, lambda: file.read_ranges(own))
    incoming: dict[int, list[memoryview]] = {}
    for piece, place in rows:
        if piece.reader != group.rank:
            incoming.setdefault(piece.reader, []).append(place)
    sent = [place for _, place in own]
    outgoing = {other: sent for other in range(group.world) if other != group.rank and sent}
    group.exchange(outgoing, incoming)
    for piece, place in rows:
        _put(piece, place, memory)
    return sum(len(place) for arrived in incoming.values() for place in arrived)


def _place(piece: Piece, memory: dict[str, memoryview]) -> memoryview:
    """Where the bytes go: into the tensor, if they are of one."""
    if len(piece.parts) > 1:
        return np.empty(piece.length, np.uint8).data
    (part,) = piece.parts
    return memory[part.tensor][part.begin : part.begin + part.length]


def _put(piece: Piece, place: memoryview, memory: dict[str, memoryview]) -> None:
    if len(piece.parts) == 1:
        return
    at = 0
    for part in piece.parts:
        memory[part.tensor][part.begin : part.begin + part.length] = place[at : at + part.length]
        at += part.length
