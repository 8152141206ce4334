"""Which layout a new file gets: first what its creator asks for, then what its directory says, then the defaults."""

from collections.abc import Sequence

from threefs.env.random import Random
from threefs.errors import InvalidArgument, Unavailable
from threefs.ids import ChainId, TableId
from threefs.layout import DEFAULT_CHUNK_BYTES, FileLayout, check_chunk_bytes
from threefs.routing import Routing
from threefs.wire import meta_pb2 as pb

DEFAULT_TABLE = TableId(1)
#: Chains of a file by default, or all chains of a smaller table. More chains would spread a file further, but its exact
#: length and its removal take a call to every chain of the stripe.
DEFAULT_STRIPE = 16

_NOT_CHOSEN = pb.Layout()


def merged(wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    """`wanted`, with the fields that it leaves open taken from `inherited`."""
    return pb.Layout(
        chunk_bytes=wanted.chunk_bytes or inherited.chunk_bytes,
        table_id=wanted.table_id or inherited.table_id,
        stripe=wanted.stripe or inherited.stripe,
    )


def of_directory(routing: Routing, wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    """The layout that a directory stores: fields that nobody chose stay 0. Raises InvalidArgument."""
    layout = merged(wanted, inherited)
    if wanted.ByteSize():
        _check(routing, layout)
    return layout


def of_file(routing: Routing, random: Random, wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    """The final layout of a new file. Raises InvalidArgument, and Unavailable while there are no chains."""
    if wanted.ByteSize():
        _check(routing, merged(wanted, inherited))
    layout = _without_placement(routing, wanted, inherited)
    draw_placement(layout, routing, random)
    return layout


def is_inherited(routing: Routing, layout: pb.Layout, inherited: pb.Layout) -> bool:
    """Whether a new file in a directory gets such a layout, apart from its placement. Raises Unavailable."""
    own = _without_placement(routing, _NOT_CHOSEN, inherited)
    return (layout.chunk_bytes, layout.table_id, layout.stripe) == (own.chunk_bytes, own.table_id, own.stripe)


def _without_placement(routing: Routing, wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    table_id = wanted.table_id or inherited.table_id
    return pb.Layout(
        chunk_bytes=wanted.chunk_bytes or inherited.chunk_bytes or DEFAULT_CHUNK_BYTES,
        table_id=table_id or DEFAULT_TABLE,
        stripe=wanted.stripe or inherited.stripe or min(len(_table(routing, table_id)), DEFAULT_STRIPE),
    )


def draw_placement(layout: pb.Layout, routing: Routing, random: Random) -> None:
    """Draw the chains of its table on which a file lies."""
    layout.table_offset = random.below(len(_table(routing, layout.table_id)))
    layout.seed = random.below(1 << 64)


def is_served(routing: Routing, layout: FileLayout, chains: int = 0) -> bool:
    """Whether each of the first `chains` of a file's stripe (0: all) has a serving target, by this routing."""
    stripe = layout.chains(routing.tables.get(layout.table_id, ()))[: chains or None]
    members = [routing.chains.get(chain) for chain in stripe]
    return all(chain is not None and chain.tail is not None for chain in members)


def _check(routing: Routing, layout: pb.Layout) -> None:
    if layout.chunk_bytes:
        check_chunk_bytes(layout.chunk_bytes)
    size = len(_table(routing, layout.table_id))
    if layout.stripe > size:
        raise InvalidArgument(f"a stripe of {layout.stripe} chains does not fit into a chain table of {size} chains")


def _table(routing: Routing, table_id: int) -> Sequence[ChainId]:
    """The chains of a table; 0 means the default table."""
    table = routing.tables.get(TableId(table_id or DEFAULT_TABLE), ())
    if table:
        return table
    if table_id and routing.tables:
        raise InvalidArgument(f"chain table {table_id} does not exist")
    raise Unavailable("the cluster has no chain table yet; `threefs up` or the Init call gives it one")
