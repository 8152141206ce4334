"""Changes of several pieces, which the head of a chain makes plain writes."""

from typing import Any

from threefs_storage.chain import craq, pieces
from threefs_storage.chain.changes import keeps_bytes

from tests.sim.planted.registry import plant, plant_for, put
from threefs.cluster.chunk_client import ChunkClient
from threefs.ids import ChunkId
from threefs.rpc.handshake import WRITE_PIECES_FEATURE
from threefs.wire import storage_pb2 as pb


@plant
def bytes_between_pieces_are_zeros() -> None:
    """The head lays the pieces over nothing, and what was committed between them is gone."""
    lay = pieces._lay

    async def blank(target: Any, chunk: Any, *rest: Any) -> None:
        await lay(target, ChunkId(0, 0), *rest)

    put(pieces, "_lay", blank)


@plant_for("unit/threefs/cluster/test_chunk_client.py::test_members_of_an_older_release_get_each_write_by_itself")
def old_member_may_get_pieces() -> None:
    """Only the head is asked, and the member that takes its place knows no pieces."""

    def of_the_head(self: ChunkClient, chain: Any) -> bool:
        routing = self._cluster.routing
        address = routing.address_of(routing.chains[chain].head)  # type: ignore[arg-type]
        return self._calls.has_feature(address, WRITE_PIECES_FEATURE)

    put(ChunkClient, "_takes_pieces", of_the_head)


@plant_for(
    "cluster/services/threefs_storage/chain/test_pieces.py::test_pieces_are_refused_where_a_plain_write_would_be"
)
def pieces_over_damaged_bytes() -> None:
    """The range has bytes of the client alone, so nobody asks about those between its pieces."""

    def plain(committed: Any, write: Any) -> bool:
        return write.kind != pb.WRITE_PIECES and keeps_bytes(committed, write)

    put(craq, "keeps_bytes", plain)
