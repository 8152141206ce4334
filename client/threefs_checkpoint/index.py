"""The index of a checkpoint: what it holds, and where each byte lies. Pure: no I/O here.

A checkpoint is a directory of data files and one file `index`, which is written last. A shard lies in one data file,
its elements in row-major order, little-endian. Its bytes are checked in pieces: a *piece* is what one chunk of the file
has of a shard. A shard of at least a chunk begins on a chunk boundary; smaller ones share chunks.

The index is a line (name of the format, version, CRC32C and length of the rest), then JSON. Reading one never runs
code.
"""

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_checkpoint.dtypes import ELEMENT_TYPES, ElementType
from threefs_checkpoint.sharding import check_cover
from threefs_checkpoint.slices import Shape, Slice

VERSION = 2
INDEX_NAME = "index"
MAX_INDEX_BYTES = 256 << 20
MAX_NAME_BYTES = 4096
MAX_DIMENSIONS = 32
MAX_FILE_BYTES = 1 << 50
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 64, 64 << 20
#: Shards begin at multiples of this, so no element lies in two pieces.
ALIGNMENT_BYTES = 64

#: With this every version begins.
START = b"threefs-checkpoint "
_FIRST_LINE = re.compile(START + rb"(\d{1,9}) ([0-9a-f]{8}) (\d{1,12})\n")
HEAD_BYTES = 64  # no first line is longer
_CRC_DIGITS = 8


class StoredShard(NamedTuple):
    part: Slice
    file: int  # the number of the data file
    offset: int  # in the file, in bytes
    crcs: tuple[int, ...]  # CRC32C of each piece


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    dtype: str
    shape: Shape
    shards: tuple[StoredShard, ...]

    @property
    def kind(self) -> ElementType:
        return ELEMENT_TYPES[self.dtype]

    @property
    def nbytes(self) -> int:
        return Slice(self.shape, self.shape).size * self.kind.itemsize


class Derived(NamedTuple):
    """A tensor that is not stored: its values are those of another one, rounded to its type."""

    dtype: str
    master: str


@dataclass(frozen=True, slots=True)
class Index:
    step: int
    world: int  # ranks that saved it
    saved_ns: int  # since 1970
    chunk_bytes: int
    file_bytes: tuple[int, ...]  # length of each data file
    tensors: Mapping[str, Tensor]
    derived: Mapping[str, Derived] = field(default_factory=dict)
    metadata: Any = None  # JSON of the user

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def data_name(number: int) -> str:
    """The name of a data file."""
    return f"data-{number:05d}"


def piece_count(offset: int, nbytes: int, chunk_bytes: int) -> int:
    """How many chunks a shard of so many bytes at `offset` of a file lies in."""
    return -(-(offset % chunk_bytes + nbytes) // chunk_bytes) if nbytes else 0


def check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise InvalidArgument(f"the name of a tensor must be text of 1 to {MAX_NAME_BYTES} bytes, not {name!r}")


def check_shape(name: str, shape: Shape, itemsize: int) -> None:
    """Raise InvalidArgument for a shape that a checkpoint does not hold, also if the tensor has no elements: no array
    has such a shape either."""
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidArgument(f"tensor {name!r} has {len(shape)} dimensions; {MAX_DIMENSIONS} are the most")
    nbytes = math.prod(length for length in shape if length) * itemsize
    if nbytes > MAX_FILE_BYTES:
        raise InvalidArgument(
            f"tensor {name!r} of the shape {list(shape)} is larger than the {MAX_FILE_BYTES} bytes that a checkpoint "
            "holds of one"
        )


def check_chunk_bytes(chunk_bytes: int) -> None:
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES or chunk_bytes & (chunk_bytes - 1):
        raise InvalidArgument(
            f"the chunks of a checkpoint have a power of two of bytes, from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}, "
            f"not {chunk_bytes}"
        )


def encode(index: Index) -> bytes:
    """Raises InvalidArgument if it is too large, or the metadata are not JSON."""
    described = {
        "step": index.step,
        "world": index.world,
        "saved_ns": index.saved_ns,
        "chunk_bytes": index.chunk_bytes,
        "files": list(index.file_bytes),
        "tensors": [_tensor_row(tensor) for tensor in index.tensors.values()],
        "derived": [[name, derived.dtype, derived.master] for name, derived in index.derived.items()],
        "metadata": index.metadata,
    }
    try:
        content = json.dumps(described, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the metadata of a checkpoint must be plain JSON values: {error}") from None
    if len(content) > MAX_INDEX_BYTES:
        raise InvalidArgument(
            f"the index of {len(index.tensors)} tensors has {len(content)} bytes; {MAX_INDEX_BYTES} are the most: "
            "larger chunks make it smaller"
        )
    return START + b"%d %08x %d\n" % (VERSION, crc32c(content), len(content)) + content


def _tensor_row(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, tensor.shape, [_shard_row(shard) for shard in tensor.shards]]


def _shard_row(shard: StoredShard) -> list[Any]:
    return [shard.part.offset, shard.part.shape, shard.file, shard.offset, crc_digits(shard.crcs)]


def _shard(row: Any) -> StoredShard:
    offset, shape, file, at, digits = row
    _check_counts(*offset, *shape, file, at)
    return StoredShard(Slice(tuple(offset), tuple(shape)), file, at, crcs_of(digits))


def crc_digits(crcs: Sequence[int]) -> str:
    """Checksums as text, 8 digits each."""
    return "".join(f"{crc:08x}" for crc in crcs)


def crcs_of(digits: str) -> tuple[int, ...]:
    """Raises ValueError, TypeError."""
    content = bytes.fromhex(digits)
    if len(digits) != 2 * len(content) or len(digits) % _CRC_DIGITS:  # `fromhex` passes over white space
        raise ValueError("checksums of a shard that are not 8 digits each")
    return struct.unpack(f">{len(content) // 4}I", content)


def decode(content: bytes, where: str) -> Index:
    """Raises Corrupt, NotSupported."""
    line = _FIRST_LINE.match(content)
    if line is None:
        raise Corrupt(f"{where} is not the index of a checkpoint, or was cut short")
    version, crc, length = int(line[1]), int(line[2], 16), int(line[3])
    if version != VERSION:
        raise NotSupported(f"{where} has format version {version}; this program reads version {VERSION}")
    rest = content[line.end() :]
    if len(rest) != length:
        raise Corrupt(f"{where}: the index has {len(rest)} of {length} bytes")
    if crc32c(rest) != crc:
        raise Corrupt(f"{where}: the index does not match its checksum")
    try:
        return _index(json.loads(rest))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise Corrupt(f"{where}: the index is not valid: {error}") from None


def _index(described: Any) -> Index:
    chunk_bytes, files = described["chunk_bytes"], described["files"]
    _check_counts(described["step"], described["world"], described["saved_ns"], chunk_bytes, *files)
    check_chunk_bytes(chunk_bytes)
    tensors: dict[str, Tensor] = {}
    for row in described["tensors"]:
        tensor = _tensor(row, chunk_bytes, files)
        if tensor.name in tensors:
            raise ValueError(f"tensor {tensor.name!r} is named twice")
        tensors[tensor.name] = tensor
    derived = {name: Derived(dtype, master) for name, dtype, master in described["derived"]}
    for name, (dtype, master) in derived.items():
        if not isinstance(name, str) or name in tensors or master not in tensors or dtype not in ELEMENT_TYPES:
            raise ValueError(f"tensor {name!r} cannot be derived from {master!r}")
    return Index(
        described["step"],
        described["world"],
        described["saved_ns"],
        chunk_bytes,
        tuple(files),
        tensors,
        derived,
        described["metadata"],
    )


def _tensor(row: Any, chunk_bytes: int, files: list[int]) -> Tensor:
    name, dtype, shape, shards = row
    check_name(name)
    if dtype not in ELEMENT_TYPES:
        raise ValueError(f"tensor {name!r} of the type {dtype!r}")
    _check_counts(*shape)
    tensor = Tensor(name, dtype, tuple(shape), tuple(_shard(shard) for shard in shards))
    check_shape(name, tensor.shape, tensor.kind.itemsize)
    for shard in tensor.shards:
        nbytes = shard.part.size * tensor.kind.itemsize
        if not shard.part.within(tensor.shape):
            raise ValueError(f"a shard reaches beyond tensor {name!r}")
        if shard.file >= len(files) or shard.offset + nbytes > files[shard.file] or shard.offset % ALIGNMENT_BYTES:
            raise ValueError(f"a shard of tensor {name!r} reaches beyond its file")
        if len(shard.crcs) != piece_count(shard.offset, nbytes, chunk_bytes):
            raise ValueError(f"a shard of tensor {name!r} has {len(shard.crcs)} checksums")
    check_cover(name, tensor.shape, [shard.part for shard in tensor.shards])
    return tensor


def _check_counts(*values: Any) -> None:
    """Raise ValueError unless all are integers that are not negative, and not beyond 64 bits."""
    if any(type(value) is not int or not 0 <= value < 1 << 63 for value in values):
        raise ValueError("a number that is not a count")
