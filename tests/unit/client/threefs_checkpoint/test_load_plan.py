from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import load_plan
from threefs_checkpoint.file_layout import lay_out
from threefs_checkpoint.index import Index, StoredShard, Tensor, piece_count
from threefs_checkpoint.slices import Slice, intersection, whole

from threefs.errors import InvalidArgument, NotFound

CHUNK = 64


def index_of(shape: tuple[int, int], cuts: list[int]) -> Index:
    """A tensor of int16, sharded by rows, all shards in one file."""
    edges = sorted({0, shape[0], *cuts})
    parts = [Slice((begin, 0), (end - begin, shape[1])) for begin, end in pairwise(edges)]
    sizes = [part.size * 2 for part in parts]
    offsets, length = lay_out(sizes, CHUNK)
    shards = tuple(
        StoredShard(part, 0, offset, (0,) * piece_count(offset, size, CHUNK))
        for part, offset, size in zip(parts, offsets, sizes, strict=True)
    )
    return Index(1, 1, 0, CHUNK, (length,), {"w": Tensor("w", "int16", shape, shards)})


@given(st.data())
def test_each_needed_piece_is_read_once_by_a_rank_that_needs_it_and_no_other_piece_is(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 30)))
    index = index_of(shape, data.draw(st.lists(st.integers(1, shape[0]), max_size=4)))
    wanted = []
    for _ in range(data.draw(st.integers(1, 4))):
        spans = [sorted(data.draw(st.tuples(*[st.integers(0, most)] * 2))) for most in shape]
        wanted.append({"w": Slice((spans[0][0], spans[1][0]), (spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]))})
    found = load_plan.pieces(index, wanted)
    assert len({piece.offset for piece in found}) == len(found)
    covered = [np.zeros(shape, int) for _ in wanted]
    for piece in found:
        assert piece.reader in piece.ranks and piece.length <= CHUNK
        for rank in piece.ranks:
            some = False
            for box, _ in piece.boxes():
                both = intersection(box, wanted[rank]["w"])
                if both is not None:
                    covered[rank][both.relative_to(whole(shape))] += 1
                    some = True
            assert some
    for rank, each in enumerate(wanted):
        expected = np.zeros(shape, int)
        expected[each["w"].relative_to(whole(shape))] = 1
        assert (covered[rank] == expected).all()


def test_reading_is_spread_over_the_ranks() -> None:
    index = index_of((64, 32), [])
    found = load_plan.pieces(index, [{"w": whole((64, 32))}] * 4)
    assert [piece.reader for piece in found[:8]] == [0, 1, 2, 3] * 2
    assert [len(part) for part in load_plan.rounds(found, 10 * CHUNK)] == [10, 10, 10, 10, 10, 10, 4]


def test_a_piece_that_lies_in_the_array_in_one_piece_is_read_into_it() -> None:
    index = index_of((8, 32), [4])
    pieces = load_plan.pieces(index, [{"w": Slice((2, 0), (4, 32))}])
    assert [load_plan.place_in(piece, Slice((2, 0), (4, 32))) for piece in pieces] == [0, 32, 64, 96]
    assert load_plan.place_in(pieces[0], Slice((0, 1), (8, 31))) is None
    assert load_plan.place_in(pieces[0], Slice((3, 0), (4, 32))) is None


def test_what_is_not_there_is_named() -> None:
    index = index_of((4, 4), [])
    with pytest.raises(NotFound, match="/a has no tensor 'x'"):
        load_plan.check(index, {"x": whole((4, 4))}, "/a")
    with pytest.raises(InvalidArgument, match=r"from \[0, 0\] to \[5, 4\] is not within"):
        load_plan.check(index, {"w": whole((5, 4))}, "/a")
    with pytest.raises(InvalidArgument, match=r"by a Slice\(offset, shape\), not by \(0, 2\)"):
        load_plan.check(index, {"w": (0, 2)}, "/a")  # type: ignore[dict-item]
