from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import sharding
from threefs_checkpoint.sharding import HeldShard, assign
from threefs_checkpoint.slices import Slice, whole

from threefs.errors import InvalidArgument


def held(name: str, rows: int, begin: int = 0, end: int = -1, dtype: str = "float32") -> HeldShard:
    return HeldShard(name, dtype, (rows, 3), Slice((begin, 0), ((rows if end < 0 else end) - begin, 3)))


def test_replicated_tensors_are_written_once_each_by_the_next_rank() -> None:
    tensors = [held(f"layer.{number}", 4) for number in range(7)]
    written = assign([tensors] * 3)
    assert written == [tensors[0::3], tensors[1::3], tensors[2::3]]


def test_shards_of_a_sharded_optimizer_are_written_where_they_are() -> None:
    holdings = [[held("moments", 10, 0, 4)], [held("moments", 10, 4, 8)], [held("moments", 10, 8, 10)]]
    assert assign(holdings) == holdings


def test_experts_with_two_replicas_are_scattered_over_them() -> None:
    """Four ranks: 0 and 2 hold the even experts, 1 and 3 the odd ones."""
    experts = [held(f"expert.{number}", 2) for number in range(8)]
    written = assign([experts[0::2], experts[1::2]] * 2)
    assert sorted(shard for part in written for shard in part) == experts
    assert all(len(part) == 2 for part in written)


@pytest.mark.parametrize(
    ("holdings", "message"),
    [
        ([[held("a", 4)], [held("a", 5)]], "rank 0 holds tensor 'a' as .* rank 1"),
        ([[held("a", 4)], [held("a", 4, dtype="float64")]], "rank 0 holds tensor 'a' as .* rank 1"),
        ([[held("a", 4, 0, 3)], [held("a", 4, 2, 4)]], "overlap"),
        ([[held("a", 4, 0, 2)], [held("a", 4, 3, 4)]], "9 of its 12 elements"),
        ([[held("a", 4, 2, 6)]], "beyond its shape"),
    ],
)
def test_what_does_not_make_up_a_tensor_is_refused(holdings: list[list[HeldShard]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        assign(holdings)


def test_an_overlap_among_very_many_shards_is_found() -> None:
    rows = [held("a", 1000, number, number + 1) for number in range(999)]
    parts = [Slice((998, 0), (1, 2)), Slice((999, 0), (1, 1))]  # as many elements as are missing
    with pytest.raises(InvalidArgument, match="the shards of tensor 'a' overlap"):
        assign([rows, [rows[0]._replace(part=part) for part in parts]])


@given(st.data(), st.integers(1, 5))
def test_each_shard_is_written_by_exactly_one_rank_that_holds_it(data: st.DataObject, world: int) -> None:
    holdings: list[list[HeldShard]] = [[] for _ in range(world)]
    for name in "abcdef":
        cuts = sorted({0, 12, *data.draw(st.lists(st.integers(0, 12), max_size=3))})
        for begin, end in pairwise(cuts):
            for rank in data.draw(st.sets(st.integers(0, world - 1), min_size=1)):
                holdings[rank].append(held(name, 12, begin, end))
    written = assign(holdings)
    assert all(set(part) <= set(mine) for part, mine in zip(written, holdings, strict=True))
    assert sorted(shard for part in written for shard in part) == sorted({s for mine in holdings for s in mine})
    assert [sharding.decode(sharding.encode(mine)) for mine in holdings] == holdings


def test_scalars_and_empty_tensors() -> None:
    step, empty = HeldShard("step", "int64", (), whole(())), HeldShard("empty", "int8", (0, 2), whole((0, 2)))
    assert assign([[step, empty], [step]]) == [[step], []]
