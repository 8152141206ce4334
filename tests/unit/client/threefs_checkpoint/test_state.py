import numpy as np
import pytest
from threefs_checkpoint.index import Derived
from threefs_checkpoint.slices import Slice, whole
from threefs_checkpoint.state import Shard, State, described

from threefs.errors import InvalidArgument

ARRAY = np.zeros((2, 3), np.uint16)


def test_tensors_and_slices_are_described() -> None:
    state: State = {"w": ARRAY, "b": Shard(ARRAY, (8, 3), (4, 0), "bfloat16"), "p": ARRAY}
    found = described(state, {"p": Derived("uint16", "w")})
    assert [tuple(held) for held in found.held] == [
        ("w", "uint16", (2, 3), whole((2, 3))),
        ("b", "bfloat16", (8, 3), Slice((4, 0), (2, 3))),
    ]
    assert found.arrays[found.held[0]] is ARRAY
    assert described(state, {}).digest != found.digest == described(state, {"p": Derived("uint16", "w")}).digest


@pytest.mark.parametrize("shard", [Shard(ARRAY, (8, 3), (7, 0)), Shard(ARRAY, (8,), (0,)), Shard(ARRAY, (8, 3), (0,))])
def test_a_slice_beyond_its_tensor_is_refused(shard: Shard) -> None:
    with pytest.raises((InvalidArgument, ValueError), match=r"is not within|shorter|longer"):
        described({"w": shard}, {})


def test_a_place_that_is_not_whole_is_refused() -> None:
    for shard in (Shard(ARRAY, (8.0, 3), (0, 0)), Shard(ARRAY, (8, 3), (0.5, 0)), Shard(ARRAY, 8, 0)):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="of a shard of tensor 'w' is a tuple of whole numbers"):
            described({"w": shard}, {})


def test_names_and_types_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="name of a tensor"):
        described({"": ARRAY}, {})
    with pytest.raises(InvalidArgument, match="tensor 'w'"):
        described({"w": Shard(ARRAY, (2, 3), (0, 0), "float32")}, {})
