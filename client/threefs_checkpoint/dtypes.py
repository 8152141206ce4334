"""The types of a tensor's elements, by name, and how numpy carries them.

numpy knows no bfloat16 and no 8-bit floats. Here an array of unsigned integers of the same size carries their bits, and
the name of the type goes with it. Arrays of `ml_dtypes`, which names these types alike, are taken too.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from threefs.errors import InvalidArgument, NotSupported

#: What numpy does not know: the bits to look at, and what they are in an element that is not a finite number.
_NOT_FINITE = {
    "bfloat16": (0x7F80, 0x7F80),
    "float8_e4m3fn": (0x7F, 0x7F),
    "float8_e4m3fnuz": (0xFF, 0x80),
    "float8_e5m2": (0x7C, 0x7C),
    "float8_e5m2fnuz": (0xFF, 0x80),
    "float8_e8m0fnu": (0xFF, 0xFF),
}


class ElementType(NamedTuple):
    name: str
    carrier: np.dtype[Any]  # little-endian; of the same size

    @property
    def itemsize(self) -> int:
        return self.carrier.itemsize


_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_NARROW = {
    "bfloat16": "uint16",
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), "uint8"),
}

#: The types that a tensor may hold: numbers, never objects.
ELEMENT_TYPES = {
    name: ElementType(name, np.dtype(carrier).newbyteorder("<"))
    for name, carrier in ({name: name for name in _PLAIN} | _NARROW).items()
}


def element_type(tensor: str, array: NDArray[Any], dtype: str = "") -> ElementType:
    """The type of an array's elements: `dtype`, if it is named, else that of the array. Raises InvalidArgument."""
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(
            f"tensor {tensor!r} is a {type(array).__module__}.{type(array).__qualname__}, and a checkpoint takes numpy "
            "arrays: tensor.detach().cpu().numpy() makes one of a torch tensor, numpy.asarray of a number or a list"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument(f"tensor {tensor!r} is a masked array; a checkpoint holds no masks: `filled` ends them")
    found = ELEMENT_TYPES.get(dtype or array.dtype.name)
    if found is None:
        raise InvalidArgument(
            f"tensor {tensor!r} has the type {dtype or array.dtype}; a checkpoint holds {', '.join(ELEMENT_TYPES)}"
        )
    own = array.dtype
    if own not in (found.carrier, np.dtype(f"V{found.itemsize}")) and not (
        own.name == found.name and own.itemsize == found.itemsize and own.byteorder != ">"
    ):
        raise InvalidArgument(
            f"tensor {tensor!r} is an array of {own} ({own.str}), which does not carry {found.name}: "
            f"{found.carrier} does"
        )
    return found


def carried(array: NDArray[Any], kind: ElementType) -> NDArray[Any]:
    """The same memory as the carrier of its type."""
    array = np.asarray(array)  # a matrix, which is one, stays two-dimensional whatever is done to it
    return array if array.dtype == kind.carrier else array.view(kind.carrier)


def is_finite(array: NDArray[Any], kind: ElementType) -> bool:
    """Whether each element is a finite number."""
    values = carried(array, kind)
    if kind.name not in _NOT_FINITE:
        return bool(np.isfinite(values).all())
    mask, bits = _NOT_FINITE[kind.name]
    return bool(((values & mask) != bits).all())


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def rounded(array: NDArray[Any], source: ElementType, wanted: ElementType) -> NDArray[Any]:
    """The values of a carried array of one floating type in a narrower one, rounded to nearest, ties to even.

    Raises NotSupported for a pair of types that parameters are not kept in.
    """
    if source == wanted:
        return array
    if wanted.name == "bfloat16" and source.name in ("float32", "float64"):
        return _to_bfloat16(array.astype(np.float32))
    if source.name in ("float32", "float64") and wanted.name in ("float16", "float32"):
        with np.errstate(over="ignore"):  # what is too large becomes infinite, as in training
            return array.astype(wanted.carrier)
    raise NotSupported(f"values of {source.name} are not converted to {wanted.name}")


def _to_bfloat16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(array).view(np.uint32)
    half = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    upper = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), upper)
