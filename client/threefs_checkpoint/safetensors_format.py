"""The header of a safetensors file. Pure: no I/O here, and neither torch nor the library safetensors.

A file begins with the length of its header (8 bytes, little-endian), then the header (JSON, padded with spaces), then
the tensors, without holes and without overlaps. The header maps the name of each tensor to its dtype, its shape and its
first and last byte in the data, and `__metadata__` to a map of texts. Integers and numbers are little-endian.

A header comes from whoever made the file, so everything in it is checked before memory is taken for it.
"""

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_checkpoint.index import MAX_DIMENSIONS, MAX_FILE_BYTES

#: That of the library safetensors.
MAX_HEADER_BYTES = 100_000_000
#: Also a short text may describe very many objects, each of which takes memory.
MAX_TENSORS = 1 << 20

METADATA = "__metadata__"

_LENGTH = struct.Struct("<Q")
LENGTH_BYTES = _LENGTH.size
_ALIGNMENT_BYTES = 8  # of the first tensor

#: Bits of one number of each dtype, from the least alignment to the greatest: the tensors of a file lie in the opposite
#: order, so that each is aligned.
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
_RANKS = {name: rank for rank, name in enumerate(reversed(DTYPE_BITS))}

#: Their names in numpy. Those of the second group come from the library ml_dtypes.
_PLAIN = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_OF_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
#: The format's names of these types.
DTYPE_NAMES = {of_numpy: name for name, of_numpy in (_PLAIN | _OF_ML_DTYPES).items()}

#: A text, or the begin or end of an object or a list. Possessive: no hostile text makes it search twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]', re.DOTALL)
_DEEPEST = 3  # the header, a tensor, its shape


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor is in the file and what it is."""

    dtype: str  # one of DTYPE_BITS
    shape: tuple[int, ...]
    offset: int  # from the beginning of the file

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class Header:
    tensors: dict[str, TensorInfo]  # in the order of their bytes
    metadata: dict[str, str]
    file_bytes: int


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The type of arrays for `dtype`, one of DTYPE_BITS. Raises NotSupported."""
    if dtype in _PLAIN:
        return np.dtype(_PLAIN[dtype]).newbyteorder("<")
    if dtype not in _OF_ML_DTYPES:
        raise NotSupported(f"numpy has no type for {dtype}, of which a number takes {DTYPE_BITS[dtype]} bits")
    try:
        import ml_dtypes
    except ImportError:
        raise NotSupported(f"numpy has a type for {dtype} only with the library ml_dtypes; install it") from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _OF_ML_DTYPES[dtype]))
    return found


def dtype_name(name: str, dtype: np.dtype[Any]) -> str:
    """The format's name for the type of the array `name`. Raises InvalidArgument."""
    if dtype.name not in DTYPE_NAMES or dtype.newbyteorder("<") != dtype:
        raise InvalidArgument(
            f"tensor {name!r} has the type {dtype}; a safetensors file holds little-endian {', '.join(DTYPE_NAMES)}"
        )
    return DTYPE_NAMES[dtype.name]


# ---- writing ----


def encode_header(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, Header]:
    """The beginning of a file of tensors with these dtypes and shapes, and where each of them is to be written. Raises
    InvalidArgument."""
    metadata = dict(metadata or {})
    if any(not isinstance(text, str) for pair in metadata.items() for text in pair):
        raise InvalidArgument("the metadata of a safetensors file map text to text")
    fields: dict[str, Any] = {METADATA: metadata} if metadata else {}
    offsets: dict[str, int] = {}
    end = 0
    for name in sorted(tensors, key=lambda name: (_RANKS[tensors[name][0]], name)):
        dtype, shape = tensors[name]
        if not isinstance(name, str) or name == METADATA:
            raise InvalidArgument(f"a tensor cannot be called {name!r}")
        try:
            size = _size(dtype, shape)
        except ValueError as error:
            raise InvalidArgument(f"tensor {name!r}: {error}") from None
        offsets[name] = end
        end += size
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offsets[name], end]}
    content = _encode(fields)
    begin = LENGTH_BYTES + len(content)
    found = {name: TensorInfo(*tensors[name], begin + offset) for name, offset in offsets.items()}
    return _LENGTH.pack(len(content)) + content, Header(found, metadata, begin + end)


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        content = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a name or a text of the metadata is not valid Unicode: {error}") from None
    content += b" " * (-len(content) % _ALIGNMENT_BYTES)
    if len(content) > MAX_HEADER_BYTES or len(fields) > MAX_TENSORS:
        raise InvalidArgument(
            f"{len(fields)} tensors need a header of {len(content)} bytes; a safetensors file has at most "
            f"{MAX_TENSORS} tensors and {MAX_HEADER_BYTES} bytes of header: write several files"
        )
    return content


# ---- reading ----


def header_bytes(start: bytes, file_bytes: int, where: str) -> int:
    """How long the header is that follows the first LENGTH_BYTES bytes of a file. Raises Corrupt."""
    if len(start) < LENGTH_BYTES:
        raise Corrupt(f"{where} has {len(start)} bytes, so it is not a safetensors file or was cut short")
    (length,) = _LENGTH.unpack_from(start)
    if length > MAX_HEADER_BYTES:
        raise Corrupt(
            f"{where} is no safetensors file: by its first {LENGTH_BYTES} bytes, its header has {length} bytes; "
            f"it has at most {MAX_HEADER_BYTES}"
        )
    if LENGTH_BYTES + length > file_bytes:
        raise Corrupt(f"{where}: a header of {length} bytes in a file of {file_bytes}; the file was cut short")
    return int(length)


def decode_header(content: bytes, file_bytes: int, where: str) -> Header:
    """`content` is what stands between the length and the first tensor. Raises Corrupt, NotSupported."""
    try:
        _check_nesting(content)
        fields = _decode(content)
        metadata = _metadata(fields.pop(METADATA, {}))
        tensors = {name: _tensor(name, entry) for name, entry in fields.items()}
        begin = LENGTH_BYTES + len(content)
        _check_extents(tensors, file_bytes - begin)
    except NotSupported as error:
        raise NotSupported(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{where}: the header is not valid: {error}") from None
    ordered = sorted(tensors.items(), key=lambda item: item[1][1:])
    found = {name: TensorInfo(info.dtype, info.shape, begin + first) for name, (info, first, _) in ordered}
    return Header(found, metadata, file_bytes)


def _check_nesting(content: bytes) -> None:
    """Before the JSON is parsed, so that it takes only as much memory as a header may."""
    if not content.startswith(b"{"):
        raise ValueError(f"it begins with {content[:1]!r}, not with '{{'")
    depth = containers = 0
    for match in _TOKEN.finditer(content):
        token = content[match.start()]
        if token in b"{[":
            depth, containers = depth + 1, containers + 1
            if depth > _DEEPEST:
                raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
        elif token in b"}]":
            depth -= 1
    if containers > 3 * MAX_TENSORS + 2:
        raise ValueError(f"it has more than {MAX_TENSORS} tensors")


def _decode(content: bytes) -> dict[str, Any]:
    found = json.loads(
        content.decode(), object_pairs_hook=_without_doubles, parse_float=_refused, parse_constant=_refused
    )
    assert isinstance(found, dict)  # it begins with "{"
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ordered = sorted(name for name, _ in pairs)
        twice = next(name for name, following in pairwise(ordered) if name == following)
        raise ValueError(f"{twice!r} stands there twice")
    return found


def _refused(number: str) -> NoReturn:
    raise ValueError(f"{number[:40]} is not a whole number")


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError(f"{METADATA} does not map text to text")
    return found


def _tensor(name: str, entry: Any) -> tuple[TensorInfo, int, int]:
    """With the first byte in the data and the one after the last."""
    name.encode()  # a ValueError if it is not Unicode
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} needs dtype, shape and data_offsets, and nothing else")
    dtype, shape, extent = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise NotSupported(f"tensor {name!r} has the dtype {dtype!r}; known are {', '.join(DTYPE_BITS)}")
    if not isinstance(shape, list) or not isinstance(extent, list) or len(extent) != 2:
        raise ValueError(f"tensor {name!r}: shape and data_offsets are lists, the latter of two numbers")
    if any(type(number) is not int or not 0 <= number <= MAX_FILE_BYTES for number in [*shape, *extent]):
        raise ValueError(f"tensor {name!r} has numbers that are not between 0 and {MAX_FILE_BYTES}")
    first, end = extent
    try:
        size = _size(dtype, tuple(shape))
    except ValueError as error:
        raise ValueError(f"tensor {name!r}: {error}") from None
    if end - first != size:
        raise ValueError(f"tensor {name!r} of {dtype} and shape {shape} takes {size} bytes, not {first} to {end}")
    return TensorInfo(dtype, tuple(shape), first), first, end


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes. Raises ValueError."""
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions; there are at most {MAX_DIMENSIONS}")
    if math.prod(length for length in shape if length) * DTYPE_BITS[dtype] // 8 > MAX_FILE_BYTES:
        raise ValueError(f"the shape {list(shape)} is larger than {MAX_FILE_BYTES} bytes")
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits % 8:
        raise ValueError(f"{math.prod(shape)} numbers of {DTYPE_BITS[dtype]} bits are not whole bytes")
    return bits // 8


def _check_extents(tensors: Mapping[str, tuple[TensorInfo, int, int]], data_bytes: int) -> None:
    """The tensors fill the data, without holes and without overlaps. Raises ValueError."""
    reached = 0
    for name, (_, first, end) in sorted(tensors.items(), key=lambda item: item[1][1:]):
        if first != reached:
            what = "overlaps the tensor before it" if first < reached else "leaves a hole before it"
            raise ValueError(f"tensor {name!r} begins at {first}, not at {reached}: it {what}")
        reached = end
    if reached != data_bytes:
        raise ValueError(f"the tensors end at byte {reached} of {data_bytes} bytes of data")
