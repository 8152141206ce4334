from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs import layout
from threefs.errors import FileTooLarge, InvalidArgument, NotServing
from threefs.ids import ChainId, TableId
from threefs.layout import FileLayout, chains_reached, permutation, spans

KIB, MIB = 1 << 10, 1 << 20
TABLE = tuple(ChainId(100 + number) for number in range(6))


def test_the_shuffle_is_the_same_for_ever() -> None:
    """Stored files depend on it: if this fails, the code is wrong and not the test."""
    assert permutation(0, 1) == (0,)
    assert permutation(0, 8) == (1, 2, 6, 5, 4, 0, 3, 7)
    assert permutation(1, 8) == (0, 3, 7, 1, 2, 6, 5, 4)
    assert permutation(2**64 - 1, 12) == (4, 9, 0, 8, 1, 6, 7, 5, 3, 2, 11, 10)


@given(st.integers(0, 2**64 - 1), st.integers(1, 300))
def test_the_shuffle_is_a_permutation(seed: int, size: int) -> None:
    assert sorted(permutation(seed, size)) == list(range(size))


def test_every_chain_is_first_about_equally_often() -> None:
    firsts = Counter(permutation(seed, 6)[0] for seed in range(6000))
    assert len(firsts) == 6
    assert max(firsts.values()) < 1200


def test_chunks_go_round_the_stripe_in_shuffled_order() -> None:
    file = FileLayout(MIB, TableId(1), stripe=4, table_offset=5, seed=0)
    order = permutation(0, 4)
    expected = [TABLE[(5 + place) % 6] for place in order]
    assert [file.chain_of(TABLE, number) for number in range(9)] == [*expected, *expected, expected[0]]
    assert file.chains(TABLE) == tuple(expected)
    assert len(set(expected)) == 4


def test_a_stripe_longer_than_the_table_wraps() -> None:
    file = FileLayout(MIB, TableId(1), stripe=12)
    assert Counter(file.chains(TABLE)) == Counter(dict.fromkeys(TABLE, 2))


def test_a_table_that_the_routing_lacks_is_worth_another_attempt() -> None:
    with pytest.raises(NotServing, match="table 1 is not in the routing yet"):
        FileLayout(MIB, TableId(1), stripe=1).chains(())


@given(st.sampled_from([64 * KIB, MIB]), st.integers(0, 10 * MIB), st.integers(0, 5 * MIB))
def test_spans_cover_the_range_without_gap_or_overlap(chunk_bytes: int, offset: int, length: int) -> None:
    at = offset
    for number, within, step in spans(chunk_bytes, offset, length):
        assert number * chunk_bytes + within == at
        assert step > 0
        assert within + step <= chunk_bytes
        at += step
    assert at == offset + length


def test_spans_at_the_edges() -> None:
    assert list(spans(MIB, 0, 0)) == []
    assert list(spans(MIB, MIB - 1, 2)) == [(0, MIB - 1, 1), (1, 0, 1)]
    assert list(spans(MIB, MIB, MIB)) == [(1, 0, MIB)]


@pytest.mark.parametrize("chunk_bytes", [0, 1, 4096, 100_000, 3 * MIB, 128 * MIB, -MIB])
def test_odd_chunk_sizes_are_refused(chunk_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match="power of two"):
        FileLayout(chunk_bytes, TableId(1), stripe=1)


@pytest.mark.parametrize(
    "fields", [{"stripe": 0}, {"stripe": 5000}, {"table_offset": -1}, {"seed": -1}, {"seed": 1 << 64}]
)
def test_layouts_out_of_range_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        FileLayout(**{"chunk_bytes": MIB, "table_id": TableId(1), "stripe": 3, **fields})  # type: ignore[arg-type]


def test_the_largest_file_depends_on_the_chunk_size() -> None:
    assert layout.max_file_bytes(64 * KIB) == (1 << 48) - 64 * KIB, "the last number is that of the fence"
    assert layout.max_file_bytes(MIB) == layout.MAX_FILE_BYTES == 1 << 50
    assert FileLayout(64 * KIB, TableId(1), 1).max_file_bytes == (1 << 48) - 64 * KIB


def test_ranges_outside_a_file_are_refused() -> None:
    layout.check_range(MIB, 0, 0)
    layout.check_range(MIB, (1 << 50) - 1, 1)
    with pytest.raises(FileTooLarge):
        layout.check_range(MIB, 1 << 50, 1)
    with pytest.raises(InvalidArgument, match="offset"):
        layout.check_range(MIB, -1, 1)
    with pytest.raises(InvalidArgument, match="length"):
        layout.check_range(MIB, 0, -1)


def test_chunk_arithmetic() -> None:
    assert [layout.chunk_count(MIB, length) for length in (0, 1, MIB, MIB + 1)] == [0, 1, 1, 2]
    assert layout.end_of(MIB, 3, 5) == 3 * MIB + 5


def test_a_layout_survives_the_wire() -> None:
    file = FileLayout(4 * MIB, TableId(1), stripe=3, table_offset=2, seed=77)
    assert layout.from_wire(layout.to_wire(file)) == file


def test_a_small_file_reaches_few_chains() -> None:
    layout = FileLayout(64 << 10, TableId(1), 4)
    ends = (0, 1, 64 << 10, (64 << 10) + 1, 4 * (64 << 10), 1 << 30)
    assert [chains_reached(layout, end) for end in ends] == [1, 1, 1, 2, 4, 4]
