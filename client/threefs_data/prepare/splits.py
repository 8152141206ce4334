"""Cuts the input into splits, the units of work: about equal in bytes, and the same for any number of workers. Pure."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass

from threefs.errors import InvalidArgument
from threefs_data.prepare.sources import Source

MIN_SPLIT_BYTES, MAX_SPLIT_BYTES = 1, 16 << 30


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file: the documents, lines or row groups that begin in these bytes."""

    source: Source
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Split:
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        """Bytes of input."""
        return sum(piece.end - piece.start for piece in self.pieces)

    def key(self, settings: str) -> str:
        """Name of its result: another one if a file has changed, or the settings have."""
        text = json.dumps([settings, [astuple(piece) for piece in self.pieces]])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def cut(sources: Iterable[Source], split_bytes: int, is_whole: Callable[[Source], bool]) -> Iterator[Split]:
    """Splits of `split_bytes`, the last one smaller. Files that are to stay whole may make a split larger."""
    if not MIN_SPLIT_BYTES <= split_bytes <= MAX_SPLIT_BYTES:
        raise InvalidArgument(
            f"splits of {split_bytes} bytes are not possible; give {MIN_SPLIT_BYTES} to {MAX_SPLIT_BYTES}"
        )
    pieces: list[Piece] = []
    room = split_bytes
    for source in sources:
        start = 0
        while start < source.length:
            end = source.length if is_whole(source) else min(source.length, start + room)
            pieces.append(Piece(source, start, end))
            room -= end - start
            start = end
            if room <= 0:
                yield Split(tuple(pieces))
                pieces, room = [], split_bytes
    if pieces:
        yield Split(tuple(pieces))
