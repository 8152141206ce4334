"""The state that a rank gives to a save: its tensors, or the slices of them that it holds."""

import hashlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from threefs.errors import InvalidArgument
from threefs_checkpoint.data_file import Arrays
from threefs_checkpoint.dtypes import ELEMENT_TYPES, carried, element_type
from threefs_checkpoint.index import Derived, check_name, check_shape
from threefs_checkpoint.sharding import HeldShard, encode
from threefs_checkpoint.slices import Shape, Slice, whole


class Shard(NamedTuple):
    """A slice of a tensor that this rank holds. Ranks that hold the same slice are replicas of it."""

    array: NDArray[Any]
    shape: Shape  # of the whole tensor
    offset: Shape  # of the slice in it
    dtype: str = ""  # where the array only carries it: "bfloat16" in uint16, "float8_e4m3fn" in uint8


class Deferred(NamedTuple):
    """A whole tensor that is loaded when its turn has come to be copied, and dropped then."""

    dtype: str  # one of ELEMENT_TYPES
    shape: Shape
    load: Callable[[], NDArray[Any]]  # an array of this shape and of the type's carrier


#: Whole tensors or slices, by name.
State = Mapping[str, NDArray[Any] | Shard | Deferred]
#: Parameters that are not saved: their values are those of a master copy, in another type.
Masters = Mapping[str, Derived]


class HeldState(NamedTuple):
    """The state of a rank, described for the other ranks."""

    held: list[HeldShard]
    arrays: Arrays
    digest: str  # of `held`


def _indexes(name: str, field: str, values: object) -> Shape:
    try:
        return tuple(operator.index(value) for value in values)  # type: ignore[attr-defined]
    except TypeError:
        raise InvalidArgument(
            f"the {field} of a shard of tensor {name!r} is a tuple of whole numbers, not {values!r}"
        ) from None


def described(state: State, masters: Masters) -> HeldState:
    """Raises InvalidArgument for what a checkpoint cannot hold."""
    arrays: dict[HeldShard, NDArray[Any] | Callable[[], NDArray[Any]]] = {}
    for name, value in state.items():
        if name in masters:
            continue
        check_name(name)
        if isinstance(value, Deferred):
            check_shape(name, value.shape, ELEMENT_TYPES[value.dtype].itemsize)
            arrays[HeldShard(name, value.dtype, value.shape, whole(value.shape))] = value.load
            continue
        shard = value if isinstance(value, Shard) else None
        array: Any = value if shard is None else shard.array
        kind = element_type(name, array, "" if shard is None else shard.dtype)
        shape = tuple(array.shape)
        part = whole(shape) if shard is None else Slice(_indexes(name, "offset", shard.offset), shape)
        total = shape if shard is None else _indexes(name, "shape", shard.shape)
        check_shape(name, total, kind.itemsize)
        if not part.within(total):
            raise InvalidArgument(
                f"the slice of tensor {name!r} from {list(part.offset)} to {list(part.end)} is not within its shape "
                f"{list(total)}"
            )
        arrays[HeldShard(name, kind.name, total, part)] = carried(array, kind)
    held = list(arrays)
    return HeldState(held, arrays, hashlib.sha256(encode(held)).hexdigest())
