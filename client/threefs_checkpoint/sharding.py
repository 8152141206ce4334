"""Which rank writes what. Pure: every rank computes the same from what all of them hold.

A *shard* is a slice of a tensor. Ranks that hold the same shard are its replicas. This one rule serves data
parallelism (all ranks hold the whole tensors), tensor and expert parallelism (each rank holds other slices), and
sharded optimizers.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from threefs.errors import InvalidArgument
from threefs_checkpoint.dtypes import ELEMENT_TYPES
from threefs_checkpoint.slices import Shape, Slice, make_up, overlapping

#: Shards among which two that overlap are looked for, to name them: each is compared with each.
_COMPARED = 300


class HeldShard(NamedTuple):
    """A shard that a rank holds."""

    name: str  # of the tensor
    dtype: str
    shape: Shape  # of the whole tensor
    part: Slice

    @property
    def nbytes(self) -> int:
        return self.part.size * ELEMENT_TYPES[self.dtype].itemsize


def assign(holdings: Sequence[Sequence[HeldShard]]) -> list[list[HeldShard]]:
    """The shards that each rank writes, of those that it holds. Each shard is written once.

    Of the shards that the same n ranks hold, shard m in the order of names and offsets is written by the (m mod n)-th
    of them. Raises InvalidArgument if ranks disagree about a tensor, or if the shards do not make it up.
    """
    holders: dict[HeldShard, list[int]] = {}
    for rank, held in enumerate(holdings):
        for shard in dict.fromkeys(held):
            holders.setdefault(shard, []).append(rank)
    _check_tensors(holders)
    assigned: list[list[HeldShard]] = [[] for _ in holdings]
    counts: dict[tuple[int, ...], int] = {}  # shards so far, of each set of replicas
    for shard in sorted(shard for shard in holders if shard.part.size):
        ranks = tuple(holders[shard])
        number = counts[ranks] = counts.get(ranks, -1) + 1
        assigned[ranks[number % len(ranks)]].append(shard)
    return assigned


def _check_tensors(holders: dict[HeldShard, list[int]]) -> None:
    by_name: dict[str, list[HeldShard]] = {}
    for shard in holders:
        by_name.setdefault(shard.name, []).append(shard)
    for name, shards in by_name.items():
        first = shards[0]
        for other in shards:
            if (other.dtype, other.shape) != (first.dtype, first.shape):
                raise InvalidArgument(
                    f"rank {holders[first][0]} holds tensor {name!r} as {first.dtype} {list(first.shape)}, "
                    f"rank {holders[other][0]} as {other.dtype} {list(other.shape)}"
                )
            if not other.part.within(other.shape):
                raise InvalidArgument(
                    f"rank {holders[other][0]} holds {_shown(other.part)} of tensor {name!r}, "
                    f"beyond its shape {list(other.shape)}"
                )
        check_cover(name, first.shape, [shard.part for shard in shards])


def check_cover(name: str, shape: Shape, parts: Sequence[Slice]) -> None:
    """Raise InvalidArgument unless the slices, each within the tensor, have each index of it once."""
    if make_up(parts, shape):
        return
    both = overlapping(parts[:_COMPARED])
    total, held = Slice(shape, shape).size, sum(part.size for part in parts)
    if both is None and held != total:
        raise InvalidArgument(f"the shards of tensor {name!r} have {held} of its {total} elements")
    which = f"{_shown(both[0])} and {_shown(both[1])} " if both is not None else ""
    raise InvalidArgument(
        f"the shards {which}of tensor {name!r} overlap: ranks that hold the same elements hold the same slice"
    )


def _shown(part: Slice) -> str:
    return "[" + ", ".join(f"{begin}:{end}" for begin, end in zip(part.offset, part.end, strict=True)) + "]"


def encode(held: Sequence[HeldShard]) -> bytes:
    """For the other ranks."""
    rows = [[shard.name, shard.dtype, shard.shape, shard.part.offset, shard.part.shape] for shard in held]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(content: bytes) -> list[HeldShard]:
    return [_held(row) for row in json.loads(content)]


def _held(row: Any) -> HeldShard:
    name, dtype, shape, offset, part = row
    return HeldShard(name, dtype, tuple(shape), Slice(tuple(offset), tuple(part)))
