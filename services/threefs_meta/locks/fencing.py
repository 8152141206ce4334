"""Fences: what was sent before one is raised is stored before that, or never. A lock is taken away from a silent
client behind a fence, so nothing it wrote under the lock is stored afterwards (I18). The exact length of a file is
asked behind one, so no write of unknown outcome comes later.

The client may only be slow: its writes may still be on their way, and it may go on before it notices. So each inode has
a number, its fence. A client that opens the file for writing gets the fence, and sends the next higher number with each
write. Before a lock is taken away, the fence is raised, first in the inode, then on all chains of the file. The chains
then refuse writes whose number is not above the fence, and have finished everything that they admitted before. Only
then is the record of the lock cleared, and another client can have the lock. A client whose locks still stand reads the
fence again when a write is refused. While a chain does not answer, the lock stays.
"""

from collections.abc import Callable, Iterable, Sequence

from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import NotServing
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.layout import FENCE_CHUNK, MAX_CHUNK_BYTES, FileLayout, from_wire
from threefs.routing import Routing
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs.wire.records_pb2 import ClientLocks
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context
from threefs_meta.file import layout_policy
from threefs_meta.store import keys

#: Whether a stored value (None: there is none) was held under a lease that has ended.
IsEnded = Callable[[bytes | None], bool]


async def fence_and_release(context: Context, key: bytes, is_ended: IsEnded) -> None:
    """Release the locks that are stored under this key, if `is_ended` is true of them then.

    Raises NotServing if a chain of the file takes no fence now, and the errors of the chains' heads.
    """
    inode = await context.transact(lambda tx: _raise_fence(context, tx, key, is_ended))
    if inode is not None:
        await raise_on_chains(context, inode)
    await context.transact(lambda tx: _clear(tx, key, is_ended))


async def end_writes(context: Context, number: int, chains: int) -> None:
    """Have every write that was sent to the first `chains` of a file's stripe (0: to all) end, or be refused.

    A write whose outcome its client does not know may be pending at a head, or on its way there: the tail, which is
    asked for the length, does not know of it yet. Other writers are refused once, and read the fence. A chain with
    fewer targets than writes need is left out: it admits no write, and later ones must name a newer chain version.
    """
    inode = await context.transact(lambda tx: _raise_in_inode(context, tx, number))
    if inode is None:
        return
    stripe = _chains(context, from_wire(inode.layout))[: chains or None]
    await _raise_on(context, inode, _admitting_writes(context.routing(), stripe))


async def raise_on_chains(context: Context, inode: pb.Inode) -> None:
    """Have all chains of the file refuse writes whose number is not above the inode's fence."""
    await _raise_on(context, inode, _chains(context, from_wire(inode.layout)))


async def _raise_on(context: Context, inode: pb.Inode, chains: Iterable[ChainId]) -> None:
    assert inode.fence > 0, "a fence is raised in the inode first"
    updates = _updates(storage_pb2.EXTEND, inode, chains, length=inode.fence)
    raised = await context.chunks.apply(updates, timeout_s=CHUNKS_TIMEOUT_S)
    highest = max((chunk.length for chunk in raised), default=0)
    if highest > inode.fence:  # the metadata were restored from a backup that does not know it
        await context.transact(lambda tx: _raise_in_inode(context, tx, inode.inode, at_least=highest))


async def remove_fence(context: Context, chain: ChainId, inode: pb.Inode, timeout_s: float) -> None:
    """Remove the chunk that holds the fence of a file that is being freed."""
    await context.chunks.apply(_updates(storage_pb2.REMOVE, inode, [chain]), timeout_s=timeout_s)


def _updates(
    kind: storage_pb2.WriteKind, inode: pb.Inode, chains: Iterable[ChainId], length: int = 0
) -> list[ChunkUpdate]:
    chunk = ChunkId(InodeId(inode.inode), FENCE_CHUNK)
    freed = kind == storage_pb2.REMOVE
    return [
        ChunkUpdate(chain, chunk, kind, MAX_CHUNK_BYTES, length=length, freed=freed) for chain in sorted(set(chains))
    ]


def _chains(context: Context, layout: FileLayout) -> Sequence[ChainId]:
    return layout.chains(context.routing().tables.get(layout.table_id, ()))


def _admitting_writes(routing: Routing, chains: Sequence[ChainId]) -> Sequence[ChainId]:
    """Those that have as many targets as writes need. One that is not known counts: it may be new."""
    minimums = routing.minimums()
    members = routing.chains
    return [chain for chain in chains if chain not in members or len(members[chain].serving) >= minimums.get(chain, 1)]


async def _raise_in_inode(context: Context, tx: Transaction, number: int, *, at_least: int = 0) -> pb.Inode | None:
    """The inode with its new fence; None if it is gone."""
    ns = context.namespace(tx)
    inode = await ns.inode(number)
    if inode is not None:
        inode.fence = max(inode.fence + 1, at_least)
        ns.put_inode_unseen(inode)
    return inode


async def _raise_fence(context: Context, tx: Transaction, key: bytes, is_ended: IsEnded) -> pb.Inode | None:
    """The inode with its new fence; None if no write has to be fenced off."""
    value = await tx.get(key)
    if value is None or not is_ended(value):
        return None
    if not any(lock.type == pb.EXCLUSIVE for lock in records.decode(value, ClientLocks, key).locks):
        return None  # a shared lock permits no writes
    ns = context.namespace(tx)
    inode = await ns.inode(keys.inode_of(key))
    if inode is None or inode.type != pb.FILE:
        return None
    layout = from_wire(inode.layout)
    chains = _chains(context, layout)
    is_served = layout_policy.is_served(context.routing(), layout)
    if not is_served or len(_admitting_writes(context.routing(), chains)) < len(chains):
        raise NotServing(f"too few targets serve a chain of inode {inode.inode}: its locks stay")
    inode.fence += 1
    ns.put_inode_unseen(inode)
    return inode


async def _clear(tx: Transaction, key: bytes, is_ended: IsEnded) -> None:
    if is_ended(await tx.get(key)):
        tx.clear(key)
