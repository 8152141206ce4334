"""What the store of a target keeps of its chain: the newest version that it was told of, before anything is done in it.

A manager whose store was restored from a backup has lost the last changes of chains. It asks for them here: a target
that was put out of its chain since the backup must not serve again with what it has (I2). Whatever was acknowledged in
a chain version is on a target that keeps that version, or a newer one.
"""

import structlog

from threefs import routing as routing_module
from threefs.errors import ThreefsError
from threefs.ids import ChainId
from threefs.kv import records
from threefs.routing import Chain, Routing
from threefs.wire import manager_pb2 as pb
from threefs_storage.engine.engine import ChunkEngine

_NAME = "chain"
_LOG = structlog.get_logger()


def load(engine: ChunkEngine) -> pb.KeptChain | None:
    """None: nothing was kept, or it cannot be read."""
    try:
        value = engine.note(_NAME)
        return None if value is None else records.decode(value, pb.KeptChain, _NAME.encode())
    except ThreefsError as error:
        _LOG.warning("what a store kept of its chain cannot be read", error=str(error))
        return None


def newest(engine: ChunkEngine, chain: Chain) -> Chain:
    """`chain`, or what the store kept of it if that is newer."""
    kept = load(engine)
    if kept is None or kept.chain.chain_id != chain.chain_id or kept.chain.version <= chain.version:
        return chain
    return routing_module.chain_from_wire(kept.chain)


async def save(engine: ChunkEngine, chain_id: ChainId, routing: Routing) -> None:
    """Durable when it returns. On a full disk it is made good before the store takes another change; on one that has
    failed there will be none."""
    chain = routing.chains[chain_id]
    known = load(engine)
    if known is not None and known.chain.chain_id == chain_id and known.chain.version >= chain.version:
        return
    members = [routing_module.target_to_wire(routing.targets[member.target_id]) for member in chain.members]
    fresh = pb.KeptChain(chain=routing_module.chain_to_wire(chain), targets=members)
    try:
        await engine.keep_note(_NAME, records.encode(fresh))
    except ThreefsError as error:
        _LOG.warning("a chain version cannot be kept", chain=chain_id, version=chain.version, error=str(error))
