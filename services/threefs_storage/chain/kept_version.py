"""The newest version of its chain, which a target stores durably before it acts in that version.

A manager whose store was restored from a backup has lost the last changes of chains, and learns them from these stored
versions: a target that was put out of its chain since the backup must not serve again with its old content (I2). Every
write that was acknowledged in a chain version is on a target that has stored that version, or a newer one.
"""

import structlog

from threefs import routing as routing_module
from threefs.errors import ThreefsError
from threefs.ids import ChainId, TargetId
from threefs.kv import records
from threefs.routing import Chain, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.record_store import CHAIN_NOTE

_LOG = structlog.get_logger()


def read(engine: ChunkEngine) -> pb.KeptChain | None:
    """The stored version; None if there is none. Raises Corrupt, Unavailable."""
    value = engine.note(CHAIN_NOTE)
    return None if value is None else records.decode(value, pb.KeptChain, CHAIN_NOTE.encode())


def load(engine: ChunkEngine) -> pb.KeptChain | None:
    """The stored version; None if there is none, or if it cannot be read."""
    try:
        return read(engine)
    except ThreefsError as error:
        _LOG.warning("the stored version of a chain cannot be read", error=str(error))
        return None


def newest(engine: ChunkEngine, chain: Chain) -> Chain:
    """The newer one of `chain` and the stored version of it."""
    kept = load(engine)
    if kept is None or kept.chain.chain_id != chain.chain_id or kept.chain.version <= chain.version:
        return chain
    return routing_module.chain_from_wire(kept.chain)


async def save(engine: ChunkEngine, target_id: TargetId, chain_id: ChainId, routing: Routing) -> None:
    """Store the version of the chain durably. On a full disk it is stored later, before any other change; a failed disk
    takes no more changes.

    A new store in the place of another one keeps none before its target is filled again. The routing may be that of a
    restored manager, which would take the version for what the other store knew.
    """
    chain = routing.chains[chain_id]
    known = load(engine)
    if known is None and _has_other_store(routing.targets.get(target_id), engine):
        return
    if known is not None and known.chain.chain_id == chain_id and known.chain.version >= chain.version:
        return
    members = [routing_module.target_to_wire(routing.targets[member.target_id]) for member in chain.members]
    fresh = pb.KeptChain(chain=routing_module.chain_to_wire(chain), targets=members)
    try:
        await engine.keep_note(CHAIN_NOTE, records.encode(fresh))
    except ThreefsError as error:
        _LOG.warning("a chain version cannot be stored", chain=chain_id, version=chain.version, error=str(error))


def _has_other_store(target: Target | None, engine: ChunkEngine) -> bool:
    return target is not None and target.store_id not in (0, engine.store_id)
