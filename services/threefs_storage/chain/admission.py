"""Admission: which requests a target takes.

A request names the chain version that its sender knows. A target takes it only in that version, and only while it holds
a lease (R3). Some requests are for one place in the chain: clients write at the head, versions are queried at the last
target that writes reach, and chunks are listed at the tail. A write of a client needs the minimum of replicas as well.
Batched reads (`reads.py`) make the same checks row by row, without errors that are raised (R2).
"""

from threefs.errors import ChainChanged, NotServing, StaleFence, TooFewReplicas, Unavailable
from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK
from threefs.routing import PublicState
from threefs.wire import storage_pb2 as pb
from threefs_storage.target import Target


def check_write(target: Target, write: pb.ChunkWrite) -> None:
    """Check a write. One with a version comes from the predecessor, so a syncing target takes it, too. One without
    comes from a client.

    Raises ChainChanged, NotServing, TooFewReplicas.
    """
    check(target, write.chain_version, syncing=write.version != 0)
    if write.version == 0:
        check_head(target)
        check_min_replicas(target, write)


def check_ahead(target: Target, write: pb.ChunkWrite) -> None:
    """Check a change whose payload comes ahead (P2). Raises ChainChanged, NotServing."""
    check(target, write.chain_version)
    if target.is_head:
        raise NotServing(
            f"target {target.target_id} is the head of chain {target.chain.chain_id}: it has no predecessor"
        )


def check(target: Target, chain_version: int, *, syncing: bool = False) -> None:
    """Check that the target may take a request of that chain version; with `syncing`, a syncing target may, too.

    Raises ChainChanged, NotServing.
    """
    if chain_version != target.chain.version:
        raise ChainChanged(
            f"chain {target.chain.chain_id} has version {target.chain.version} here, the request {chain_version}"
        )
    if not target.serving and not (syncing and target.state is PublicState.SYNCING):
        raise NotServing(f"target {target.target_id} is {target.state.name if target.state else 'not in its chain'}")
    if not target.has_lease:
        raise NotServing(f"target {target.target_id} has no lease now")


def check_fence(target: Target, write: pb.ChunkWrite) -> None:
    """Check that no fence has ended the session under which a client has sent this change (I18). The head checks that,
    and whoever takes the change ahead (P13). Raises StaleFence, and Unavailable to a repeat while the fence is pending:
    the first attempt may be early at a successor that the fence has not reached, so nobody knows its outcome."""
    inode = write.chunk.inode
    fence = target.engine.fences.get(inode, 0)
    if not write.fence or write.fence > fence:
        return
    if write.again and target.has_full_pending(ChunkId(inode, FENCE_CHUNK)):
        raise Unavailable(f"a lock on inode {inode} is being taken away: fence {fence} has not reached all replicas")
    raise StaleFence(
        f"a lock on inode {inode} was taken away since this write's session began: the write has fence "
        f"{write.fence}, only higher ones than {fence} are taken"
    )


def check_head(target: Target) -> None:
    """Raises NotServing."""
    if not target.is_head:
        raise NotServing(f"target {target.target_id} is not the head of chain {target.chain.chain_id}")


def check_tail(target: Target) -> None:
    """Raises NotServing."""
    if not target.is_tail:
        raise NotServing(f"target {target.target_id} is not the last serving target of chain {target.chain.chain_id}")


def check_last(target: Target) -> None:
    """Raises NotServing."""
    if not target.is_last:
        raise NotServing(f"target {target.target_id} is not where writes end in chain {target.chain.chain_id}")


def check_min_replicas(target: Target, write: pb.ChunkWrite) -> None:
    """Check that a write of a client may be taken, and acknowledged. The removal of a chunk that no file has promises
    nothing: if the disks that have it are lost, the chunk is back, and nobody can read it. A cluster whose chains are
    below their minimum because disks are full could never be emptied otherwise. Raises TooFewReplicas."""
    if write.kind == pb.REMOVE and write.freed:
        return
    if target.serving_count < target.min_replicas:
        raise TooFewReplicas(
            f"chain {target.chain.chain_id} has {target.serving_count} of {len(target.chain.members)} copies, and at "
            f"least {target.min_replicas} are needed for a write: wait until more serve (`threefs status`), or lower "
            "the minimum (`threefs chain min-replicas`)"
        )
