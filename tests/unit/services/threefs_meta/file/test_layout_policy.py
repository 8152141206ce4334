"""Layouts of new files."""

import dataclasses
import itertools

import pytest
from threefs_meta.file import layout_policy

from tests.harness.memory_storage import make_routing
from tests.harness.seeded_random import SeededRandom
from threefs.errors import InvalidArgument, Unavailable
from threefs.ids import TableId
from threefs.layout import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, from_wire
from threefs.routing import EMPTY, Routing
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


@pytest.mark.parametrize("stripe", [1, 4])
def test_a_new_file_begins_on_a_chain_that_is_served(stripe: int) -> None:
    """The writes of new files waited for a chain that was down."""
    routing = make_routing(chains=4)
    table = routing.tables[routing.default_table]
    wanted = pb.Layout(stripe=stripe)
    for down, first in (({table[1]}, {*table} - {table[1]}), ({*table}, {*table})):
        gone = {chain: dataclasses.replace(routing.chains[chain], members=()) for chain in down}
        now = dataclasses.replace(routing, chains={**routing.chains, **gone})
        made = [layout_policy.of_file(now, SeededRandom(seed), wanted, NOTHING) for seed in range(50)]
        assert {from_wire(layout).chain_of(table, 0) for layout in made} == first


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


def test_a_directory_stores_no_default_for_fields_that_were_not_chosen() -> None:
    layout = layout_policy.of_directory(make_routing(), pb.Layout(stripe=1), pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
    assert layout == pb.Layout(stripe=1, chunk_bytes=MIN_CHUNK_BYTES)


def test_without_chains_there_are_no_files_yet() -> None:
    with pytest.raises(Unavailable, match="threefs up"):
        layout_policy.of_file(EMPTY, SeededRandom(), NOTHING, NOTHING)


def with_tables(*sizes: int, default: int = 1) -> Routing:
    routing = make_routing(chains=sum(sizes))
    chains = iter(routing.chains)
    tables = {TableId(n): tuple(itertools.islice(chains, size)) for n, size in enumerate(sizes, 1)}
    return dataclasses.replace(routing, tables=tables, default_table=TableId(default))


def test_new_files_take_the_default_table_unless_their_directory_names_one() -> None:
    routing = with_tables(2, 3, default=2)
    for inherited, table, stripe in ((NOTHING, 2, 3), (pb.Layout(table_id=1), 1, 2), (pb.Layout(stripe=1), 2, 1)):
        layout = layout_policy.of_file(routing, SeededRandom(0), NOTHING, inherited)
        assert (layout.table_id, layout.stripe) == (table, stripe)
        assert layout_policy.is_inherited(routing, layout, inherited)
        chains = from_wire(layout).chains(routing.tables[TableId(table)])
        assert len(set(chains)) == stripe and set(chains) <= set(routing.tables[TableId(table)])
    assert not layout_policy.is_inherited(with_tables(2, 3, default=1), layout, NOTHING)


def test_a_stripe_that_was_set_for_a_larger_table_is_cut_at_a_smaller_one() -> None:
    """Otherwise a chain would be in the stripe of a file twice."""
    layout = layout_policy.of_file(with_tables(6, 2, default=2), SeededRandom(0), NOTHING, pb.Layout(stripe=5))
    assert (layout.table_id, layout.stripe) == (2, 2)
    with pytest.raises(InvalidArgument, match="5 chains does not fit into chain table 2, which has 2"):
        layout_policy.of_file(with_tables(6, 2, default=2), SeededRandom(0), pb.Layout(stripe=5), NOTHING)
    kept = layout_policy.of_directory(with_tables(6, 2), pb.Layout(table_id=2), pb.Layout(stripe=5))
    assert kept == pb.Layout(table_id=2, stripe=5), "it may go back to the larger table"


def test_a_table_that_this_service_does_not_know_yet_is_waited_for() -> None:
    with pytest.raises(Unavailable, match="chain table 3 is so new"):
        layout_policy.of_file(with_tables(2, 2), SeededRandom(0), NOTHING, pb.Layout(table_id=3))
