"""Layouts of new files."""

import pytest
from threefs_meta.file import layout_policy

from tests.harness.memory_storage import make_routing
from tests.harness.seeded_random import SeededRandom
from threefs.errors import InvalidArgument, Unavailable
from threefs.layout import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, from_wire
from threefs.routing import EMPTY
from threefs.wire import meta_pb2 as pb

NOTHING = pb.Layout()


def of_file(wanted: pb.Layout = NOTHING, inherited: pb.Layout = NOTHING, chains: int = 4, seed: int = 0) -> pb.Layout:
    return layout_policy.of_file(make_routing(chains=chains), SeededRandom(seed), wanted, inherited)


def test_defaults() -> None:
    layout = of_file()
    assert (layout.chunk_bytes, layout.table_id, layout.stripe) == (DEFAULT_CHUNK_BYTES, 1, 4)
    assert of_file(chains=100).stripe == layout_policy.DEFAULT_STRIPE
    from_wire(layout)


def test_files_begin_anywhere_in_the_table_and_are_shuffled_each_in_its_way() -> None:
    made = [of_file(seed=seed) for seed in range(50)]
    assert {layout.table_offset for layout in made} == {0, 1, 2, 3}
    assert len({layout.seed for layout in made}) == 50


def test_an_own_layout_goes_before_an_inherited_one() -> None:
    layout = of_file(pb.Layout(stripe=2), pb.Layout(stripe=3, chunk_bytes=MAX_CHUNK_BYTES))
    assert (layout.stripe, layout.chunk_bytes) == (2, MAX_CHUNK_BYTES)


@pytest.mark.parametrize(
    "wanted",
    [
        pb.Layout(chunk_bytes=MIN_CHUNK_BYTES // 2),
        pb.Layout(chunk_bytes=MAX_CHUNK_BYTES * 2),
        pb.Layout(chunk_bytes=MIN_CHUNK_BYTES + 1),
        pb.Layout(stripe=5),
        pb.Layout(table_id=2),
    ],
)
def test_what_cannot_be_is_refused_for_files_and_for_directories(wanted: pb.Layout) -> None:
    with pytest.raises(InvalidArgument):
        of_file(wanted)
    with pytest.raises(InvalidArgument):
        layout_policy.of_directory(make_routing(chains=4), wanted, NOTHING)


def test_a_directory_keeps_open_what_nobody_chose() -> None:
    layout = layout_policy.of_directory(make_routing(), pb.Layout(stripe=1), pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
    assert layout == pb.Layout(stripe=1, chunk_bytes=MIN_CHUNK_BYTES)


def test_without_chains_there_are_no_files_yet() -> None:
    with pytest.raises(Unavailable, match="threefs up"):
        layout_policy.of_file(EMPTY, SeededRandom(), NOTHING, NOTHING)
