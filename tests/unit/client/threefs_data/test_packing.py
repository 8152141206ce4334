from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.order import Numbers, Shuffled
from threefs_data.packing import PackedSchedule, Packing, Piece
from threefs_data.schedule import Position

from threefs.errors import InvalidArgument

Lengths = st.lists(st.integers(0, 40), max_size=60)


def tokens(sequences: list[list[Piece]]) -> Counter[tuple[int, int]]:
    return Counter(
        (piece.number, token)
        for sequence in sequences
        for piece in sequence
        for token in range(piece.start, piece.start + piece.length)
    )


def all_tokens(lengths: list[int]) -> Counter[tuple[int, int]]:
    return Counter((number, token) for number, length in enumerate(lengths) for token in range(length))


@given(Lengths, st.integers(1, 20))
def test_every_token_is_in_one_sequence_and_none_is_too_long(lengths: list[int], capacity: int) -> None:
    sequences = Packing(capacity).sequences(range(len(lengths)), lengths)
    assert tokens(sequences) == all_tokens(lengths)
    sizes = [sum(piece.length for piece in sequence) for sequence in sequences]
    assert all(0 < size <= capacity for size in sizes)
    assert sum(size <= capacity // 2 for size in sizes) <= 1  # two of these would have been one


@given(
    Lengths.filter(any),
    st.integers(1, 20),
    st.integers(1, 10),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 6)), max_size=8),
    st.integers(0, 1 << 30),
)
def test_nothing_is_lost_or_doubled_over_stops_and_resumes(
    lengths: list[int], capacity: int, window: int, runs: list[tuple[int, int, int]], seed: int
) -> None:
    """Each run has another number of ranks, another batch, and another number of steps."""
    packing = Packing(capacity, window)

    def lengths_of(numbers: Numbers) -> list[int]:
        return [lengths[number] for number in numbers.tolist()]

    taken: Counter[tuple[int, int]] = Counter()
    position = Position(seed=seed)
    for world, batch, steps in [*runs, (1, 5, 1000)]:
        ranks = [
            PackedSchedule(Shuffled(len(lengths)), packing, lengths_of, batch, rank, world).batches(position)
            for rank in range(world)
        ]
        for parts in zip(*(list(rank)[:steps] for rank in ranks), strict=True):
            assert len({after for _, after in parts}) == 1
            position = parts[0][1]
            for sequences, _ in parts:
                taken += tokens(sequences)
        if position.epoch:
            break
    assert taken == all_tokens(lengths)


def test_a_last_batch_that_is_not_full_may_be_left_out() -> None:
    def batches(drop_last: bool) -> list[int]:
        schedule = PackedSchedule(Shuffled(5), Packing(4), lambda numbers: [4] * len(numbers), 2, drop_last=drop_last)
        return [len(sequences) for sequences, _ in schedule.batches(Position())]

    assert batches(False) == [2, 2, 1]
    assert batches(True) == [2, 2]


def test_sequences_are_filled_well() -> None:
    lengths = np.random.default_rng(1).integers(1, 2048, 10_000).tolist()
    sequences = Packing(2048).sequences(range(10_000), lengths)
    assert sum(lengths) / (len(sequences) * 2048) > 0.99


def test_impossible_values_are_refused() -> None:
    for capacity, window in [(0, 1), (1, 0)]:
        with pytest.raises(InvalidArgument):
            Packing(capacity, window)
