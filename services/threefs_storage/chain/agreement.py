"""Neighbours in a chain agree on a chunk, or one of them leaves its chain and returns by resync (docs/protocol.md,
"Replicas that disagree")."""

from threefs.errors import ChecksumMismatch, VersionGap
from threefs.ids import ChunkId
from threefs.routing import ChainMember, PublicState
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.chunk_record import Version
from threefs_storage.target import Target


def check_base(target: Target, chunk: ChunkId, committed: Version | None, write: pb.ChunkWrite) -> Version | None:
    """The version of a predecessor's change follows the committed one here.

    Returns the committed version if the predecessor lacks it: it leaves when that is its answer. Raises VersionGap if
    this target lacks a version of its predecessor; then it leaves.
    """
    try:
        check_follows(chunk, committed, write)
    except VersionGap as error:
        if write.fresh and committed is not None and committed.version > write.base_version:
            return committed
        target.leave_divergent(error.message)
        raise
    return None


def check_follows(chunk: ChunkId, committed: Version | None, write: pb.ChunkWrite) -> None:
    """The version of a predecessor's change follows the committed one (R4). Raises VersionGap."""
    is_absent = committed is None or committed.removed
    have = committed.version if committed is not None else 0
    if write.version != have + 1 and not (write.fresh and is_absent):
        raise VersionGap(f"version {write.version} of chunk {chunk} cannot follow {have}")


def check_change(target: Target, chunk: ChunkId, made: Version, write: pb.ChunkWrite) -> None:
    """`check_made` for a change that came with its bytes. Those of clients and of older programs say nothing."""
    if write.version and write.HasField("whole_checksum"):
        check_made(target, chunk, made, write.whole_length, write.whole_checksum)


def check_made(target: Target, chunk: ChunkId, made: Version, length: int, checksum: int) -> None:
    """A predecessor's change has made the same content here as there, so it was applied to the same content (I4).

    Raises ChecksumMismatch; then this target leaves.
    """
    if (made.length, made.checksum) == (length, checksum):
        return
    message = (
        f"version {made.version} of chunk {chunk} has {made.length} bytes and checksum {made.checksum:08x} here, and "
        f"{length} bytes and checksum {checksum:08x} at the predecessor"
    )
    target.leave_divergent(message)
    raise ChecksumMismatch(message)


def check_answer(
    target: Target, chunk: ChunkId, pending: Version, successor: ChainMember, result: pb.ChunkWriteResult
) -> None:
    """The successor has committed the pending version with the same content (I4). A syncing one may have a newer
    version of this chain version (I3).

    Raises ChecksumMismatch; then this target leaves, if the successor serves: that has committed what this target has
    not.
    """
    is_serving = successor.state is PublicState.SERVING
    if (result.version, result.length, result.checksum) == (pending.version, pending.length, pending.checksum):
        return
    if result.version > pending.version and not is_serving:
        return
    message = (
        f"target {successor.target_id} has committed version {result.version} of chunk {chunk} with {result.length} "
        f"bytes and checksum {result.checksum:08x}; here version {pending.version} with {pending.length} bytes and "
        f"checksum {pending.checksum:08x} is pending"
    )
    if is_serving:
        target.leave_divergent(message)
    raise ChecksumMismatch(message)
