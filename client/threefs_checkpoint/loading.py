"""Loads tensors, or slices of them, on any number of ranks, however they were sharded when they were saved.

With read-once, each piece is read from storage by one rank, which passes it on to the others that need it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, ThreefsError, Unavailable
from threefs_checkpoint import load_plan
from threefs_checkpoint.dtypes import ELEMENT_TYPES, bytes_of, rounded
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.group import Group, SingleGroup
from threefs_checkpoint.index import Index, data_name
from threefs_checkpoint.load_plan import Piece, Wanted
from threefs_checkpoint.slices import Slice, intersection, whole

#: Bytes that the ranks together read, and hold beside the loaded tensors, at a time.
ROUND_BYTES = 256 << 20

Arrays = dict[str, NDArray[Any]]


@dataclass(slots=True)
class LoadReport:
    """The part of a rank in a load."""

    bytes_read: int = 0  # from storage
    bytes_received: int = 0  # from other ranks


def wanted_of(index: Index, names: Sequence[str] | Mapping[str, Slice] | None) -> dict[str, Slice]:
    """The slices that `names` mean: all of each tensor, unless a slice is named."""
    if isinstance(names, Mapping):
        return dict(names)
    chosen = [*index.tensors, *index.derived] if names is None else names
    return {name: whole(shape_of(index, name)) for name in chosen}


def shape_of(index: Index, name: str) -> tuple[int, ...]:
    """Empty for a tensor that is not there: `load` names it then."""
    derived = index.derived.get(name)
    tensor = index.tensors.get(name if derived is None else derived.master)
    return () if tensor is None else tensor.shape


def load(
    fs: FileSystem,
    path: str,
    index: Index,
    wanted: Mapping[str, Slice],
    *,
    group: Group | None = None,
    read_once: bool = True,
    into: Mapping[str, NDArray[Any]] | None = None,
    report: LoadReport | None = None,
) -> Arrays:
    """The wanted slices, each verified, as arrays of their carriers. Every rank of the group calls it.

    Tensors that `into` has are loaded into its arrays, which must have the shape and the carrier. That takes no more
    memory, and is faster: new memory costs more than reading does. If the load fails, their content is undefined.
    Without `read_once` each rank reads what it needs, whatever the others do. Raises NotFound, InvalidArgument,
    Corrupt, and Unavailable where another rank has failed.
    """
    group = group if group is not None and read_once else SingleGroup()
    masters = {name: index.derived[name].master for name in wanted if name in index.derived}
    stored: dict[str, Slice] = {}
    for name, part in wanted.items():
        key = masters.get(name, name)
        stored[key] = part if key not in stored else _hull(stored[key], part)

    def check() -> None:
        load_plan.check(index, stored, path)
        _check_into(index, wanted, into)

    agree(group, check)
    everyone = [_decoded(message) for message in group.all_gather(_encoded(stored))]
    given = dict(into or {})
    arrays: Arrays = {}

    def allocate() -> None:
        for key, part in stored.items():
            fits = key in given and wanted.get(key) == part
            arrays[key] = given[key] if fits else _new_array(key, part, _carrier(index, key))

    agree(group, allocate)
    loader = _Loader(fs, path, group, stored, arrays, report if report is not None else LoadReport())
    for portion in load_plan.rounds(load_plan.pieces(index, everyone), ROUND_BYTES):
        loader.load(portion)
    found = {name: _finished(index, name, part, stored, arrays) for name, part in wanted.items()}
    for name, array in given.items():
        if name in found and found[name] is not array:
            array[...] = found[name]
            found[name] = array
    return found


def _check_into(index: Index, wanted: Wanted, into: Mapping[str, NDArray[Any]] | None) -> None:
    for name, array in (into or {}).items():
        if name not in wanted:
            continue
        derived = index.derived.get(name)
        carrier = _carrier(index, name) if derived is None else ELEMENT_TYPES[derived.dtype].carrier
        shape = wanted[name].shape
        if array.shape != shape or array.dtype != carrier or not (array.flags.c_contiguous and array.flags.writeable):
            raise InvalidArgument(
                f"tensor {name!r} is loaded into a contiguous, writable array of {carrier} and the shape "
                f"{list(shape)}, not into one of {array.dtype} and {list(array.shape)}"
            )


def _carrier(index: Index, name: str) -> np.dtype[Any]:
    return index.tensors[name].kind.carrier


def _new_array(name: str, part: Slice, carrier: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.empty(part.shape, carrier)
    except MemoryError:
        raise InvalidArgument(
            f"there is no memory for the {part.size * carrier.itemsize} bytes of tensor {name!r}: load a slice of it, "
            "or fewer tensors"
        ) from None


def _hull(left: Slice, right: Slice) -> Slice:
    """The smallest slice that has both."""
    offset = tuple(map(min, left.offset, right.offset))
    end = map(max, left.end, right.end)
    return Slice(offset, tuple(stop - begin for begin, stop in zip(offset, end, strict=True)))


def _finished(index: Index, name: str, part: Slice, stored: Wanted, arrays: Arrays) -> NDArray[Any]:
    derived = index.derived.get(name)
    key = name if derived is None else derived.master
    array = arrays[key] if stored[key] == part else arrays[key][part.relative_to(stored[key])]
    if derived is None:
        return array
    return rounded(array, index.tensors[key].kind, ELEMENT_TYPES[derived.dtype])


def _encoded(wanted: Wanted) -> bytes:
    return json.dumps([[name, part.offset, part.shape] for name, part in wanted.items()]).encode()


def _decoded(message: bytes) -> dict[str, Slice]:
    return {name: Slice(tuple(offset), tuple(shape)) for name, offset, shape in json.loads(message)}


def agree(group: Group, work: Callable[[], object]) -> None:
    """Do something on each rank. If it fails on one, it fails on all."""
    failure: Exception | None = None
    try:
        work()
    except Exception as error:  # whatever it is: the other ranks wait to hear of it
        failure = error
    messages = group.all_gather(b"" if failure is None else _said(failure).encode(errors="replace"))
    if failure is not None:
        raise failure
    for rank, message in enumerate(messages):
        if message:
            raise Unavailable(f"rank {rank} could not load its part: {message.decode(errors='replace')}")


def _said(failure: Exception) -> str:
    return str(failure) if isinstance(failure, ThreefsError) else f"{type(failure).__name__}: {failure}"


class _Loader:
    def __init__(
        self, fs: FileSystem, path: str, group: Group, wanted: Wanted, arrays: Arrays, report: LoadReport
    ) -> None:
        self._fs = fs
        self._path = path
        self._group = group
        self._wanted = wanted
        self._arrays = arrays
        self._memory = {name: bytes_of(array) for name, array in arrays.items()}
        self._report = report

    def load(self, portion: Sequence[Piece]) -> None:
        """Read, pass on and put in place. All ranks do the same portions in the same order."""
        rank = self._group.rank
        places = {number: self._place(piece) for number, piece in enumerate(portion) if rank in piece.ranks}
        own = [number for number, piece in enumerate(portion) if piece.reader == rank]
        agree(self._group, lambda: self._read([portion[n] for n in own], [places[n] for n in own]))
        outgoing: dict[int, list[memoryview]] = {}
        incoming: dict[int, list[memoryview]] = {}
        received = []
        for number, piece in enumerate(portion):
            if piece.reader == rank:
                for other in piece.ranks:
                    if other != rank:
                        outgoing.setdefault(other, []).append(places[number])
            elif rank in piece.ranks:
                incoming.setdefault(piece.reader, []).append(places[number])
                received.append(number)
        if self._group.world > 1:
            self._group.exchange(outgoing, incoming)
            agree(self._group, lambda: self._accept([(portion[n], places[n]) for n in received]))
        for number, place in places.items():
            self._put(portion[number], place)

    def _place(self, piece: Piece) -> memoryview:
        """Where the bytes of a piece go: into the tensor, if they lie in it in one piece."""
        begin = load_plan.place_in(piece, self._wanted[piece.tensor.name])
        if begin is None:
            return np.empty(piece.length, np.uint8).data
        start = begin * piece.tensor.kind.itemsize
        return self._memory[piece.tensor.name][start : start + piece.length]

    def _read(self, own: Sequence[Piece], places: Sequence[memoryview]) -> None:
        if not own:
            return
        rows = [(f"{self._path}/{data_name(piece.shard.file)}", piece.offset, piece.length) for piece in own]
        for piece, view, place in zip(own, self._fs.read_batch(rows, into=list(places)), places, strict=True):
            if len(view) != piece.length:
                raise Corrupt(f"{self._path}/{data_name(piece.shard.file)} was cut short")
            self._check(piece, place, "storage")
            self._report.bytes_read += piece.length

    def _accept(self, received: Sequence[tuple[Piece, memoryview]]) -> None:
        for piece, place in received:
            self._check(piece, place, f"rank {piece.reader}")
            self._report.bytes_received += piece.length

    def _check(self, piece: Piece, place: memoryview, source: str) -> None:
        if crc32c(place) != piece.crc:
            file = f"{self._path}/{data_name(piece.shard.file)}"
            raise Corrupt(
                f"the {piece.length} bytes at {piece.offset} of {file}, which are of tensor {piece.tensor.name!r}, "
                f"came from {source} and do not match their checksum"
            )

    def _put(self, piece: Piece, place: memoryview) -> None:
        part = self._wanted[piece.tensor.name]
        if load_plan.place_in(piece, part) is not None:
            return
        array = self._arrays[piece.tensor.name]
        elements = np.frombuffer(place, array.dtype)
        for box, number in piece.boxes():
            both = intersection(box, part)
            if both is not None:
                content = elements[number : number + box.size].reshape(box.shape)
                array[both.relative_to(part)] = content[both.relative_to(box)]
