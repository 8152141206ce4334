"""Which layout a new file gets: first what its creator asks for, then what its directory says, then the defaults."""

from collections.abc import Sequence

from threefs.env.random import Random
from threefs.errors import InvalidArgument, Unavailable
from threefs.ids import ChainId, TableId
from threefs.layout import DEFAULT_CHUNK_BYTES, FileLayout, check_chunk_bytes, from_wire
from threefs.routing import Routing
from threefs.wire import meta_pb2 as pb

#: Chains of a file by default, or all chains of a smaller table. More chains would spread a file further, but its exact
#: length and its removal take a call to every chain of the stripe.
DEFAULT_STRIPE = 16
#: Placements that are drawn for a file at most, until its first chunk lies on a chain that is served.
_MAX_DRAWS = 8

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
    _check(routing, wanted, inherited)
    return merged(wanted, inherited)


def of_file(routing: Routing, random: Random, wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    """The final layout of a new file. Raises InvalidArgument, and Unavailable while there are no chains."""
    _check(routing, wanted, inherited)
    layout = _without_placement(routing, wanted, inherited)
    draw_placement(layout, routing, random)
    assert layout.chunk_bytes and layout.table_id and layout.stripe, "the layout of a file leaves nothing open"
    return layout


def is_inherited(routing: Routing, layout: pb.Layout, inherited: pb.Layout) -> bool:
    """Whether a new file in a directory gets such a layout, apart from its placement. Raises Unavailable."""
    own = _without_placement(routing, _NOT_CHOSEN, inherited)
    return (layout.chunk_bytes, layout.table_id, layout.stripe) == (own.chunk_bytes, own.table_id, own.stripe)


def _without_placement(routing: Routing, wanted: pb.Layout, inherited: pb.Layout) -> pb.Layout:
    table_id = wanted.table_id or inherited.table_id or routing.default_table
    most = len(_table(routing, table_id))
    return pb.Layout(
        chunk_bytes=wanted.chunk_bytes or inherited.chunk_bytes or DEFAULT_CHUNK_BYTES,
        table_id=table_id,
        # An inherited stripe may be longer than the table: the directory was set up when another one was the default.
        stripe=min(wanted.stripe or inherited.stripe or DEFAULT_STRIPE, most),
    )


def draw_placement(layout: pb.Layout, routing: Routing, random: Random) -> None:
    """Draw the chains of its table on which a file lies. Its first chunk, the only one of most files, lies on a chain
    that is served, if one is found soon."""
    table = _table(routing, layout.table_id)
    for _ in range(_MAX_DRAWS):
        layout.table_offset = random.below(len(table))
        layout.seed = random.below(1 << 64)
        # Which chain is the first one takes longer to compute than all else here.
        if not routing.unserved or from_wire(layout).chain_of(table, 0) not in routing.unserved:
            return


def is_served(routing: Routing, layout: FileLayout) -> bool:
    """Whether each chain of a file's stripe has a serving target, by this routing."""
    members = [routing.chains.get(chain) for chain in layout.chains(routing.tables.get(layout.table_id, ()))]
    return all(chain is not None and chain.tail is not None for chain in members)


def _check(routing: Routing, wanted: pb.Layout, inherited: pb.Layout) -> None:
    """Raises InvalidArgument if a file cannot have what was asked for."""
    if wanted.chunk_bytes:
        check_chunk_bytes(wanted.chunk_bytes)
    if wanted.table_id and routing.tables and wanted.table_id not in routing.tables:
        raise InvalidArgument(f"chain table {wanted.table_id} does not exist; `threefs table ls` lists the tables")
    if wanted.stripe:
        table_id = merged(wanted, inherited).table_id or routing.default_table
        size = len(_table(routing, table_id))
        if wanted.stripe > size:
            raise InvalidArgument(
                f"a stripe of {wanted.stripe} chains does not fit into chain table {table_id}, which has {size} chains"
            )


def _table(routing: Routing, table_id: int) -> Sequence[ChainId]:
    """The chains of a table. Raises Unavailable for one that is not known yet."""
    table = routing.tables.get(TableId(table_id), ())
    if table:
        return table
    if routing.tables:
        raise Unavailable(f"chain table {table_id} is so new that this meta service does not know it yet; try again")
    raise Unavailable("the cluster has no chain table yet; `threefs up` or the Init call gives it one")
