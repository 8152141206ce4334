"""A change of a chunk at one target: the checks that it needs, and what the engine stages for it."""

from functools import partial

from threefs.errors import ChunkLost, Corrupt, CorruptChunk, NoSpace, OutcomeUnknown, Retry, ThreefsError, Unavailable
from threefs.ids import ChunkId, WriteIdentity
from threefs.layout import FENCE_CHUNK
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.write_messages import change_of, content_of, entries_of, identity_of
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.content_plan import Update, keeps_content
from threefs_storage.engine.exactly_once import Forgotten
from threefs_storage.target import Target

#: Room for so many whole chunks is left on the disk of a head that lets payloads go ahead.
_AMPLE_CHUNKS = 16
_NO_RECORD = Record()


def update_of(
    target: Target, chunk: ChunkId, write: pb.ChunkWrite, version: int, identity: WriteIdentity | None
) -> Update:
    """The change that the engine stages."""
    assert not write.version or version == write.version, "only the head numbers a change (I4)"
    return Update(
        kind=write.kind,
        version=version,
        chain_version=target.chain.version,
        offset=write.offset,
        length=write.length,
        checksum=write.checksum,
        chunk_bytes=write.chunk_bytes,
        identity=identity,
        removed=write.removed,
        entries=entries_of(write) if write.kind == pb.REPLACE else None,
        admitted=write.version != 0 or chunk.number == FENCE_CHUNK,
        fresh=write.fresh or (not write.version and _absent(target, chunk)),
        lost=write.lost,
        forgotten=Forgotten(write.forgotten_version, write.forgotten_stamp),
        stamp=_stamp(target, write),
        check=partial(target.check_epoch, chunk),
    )


def keeps_bytes(committed: Version, write: pb.ChunkWrite) -> bool:
    """Whether bytes of the committed version are part of what the write makes."""
    if write.kind == pb.WRITE_PIECES:
        return True  # those between the pieces
    return keeps_content(committed.length, write.kind, write.offset, write.length, write.chunk_bytes)


def check_kept_bytes(target: Target, chunk: ChunkId, committed: Version) -> None:
    """Check that the bytes of the committed version may become part of another one; a fence is known without them.
    Raises ChunkLost, Unavailable."""
    if committed.lost and chunk.number != FENCE_CHUNK:
        raise ChunkLost(f"the bytes of chunk {chunk} are lost: it can only be overwritten as a whole, or removed")
    if chunk in target.damaged:
        # Another member may have these bytes, but never those of a version that is made of damaged ones.
        raise Unavailable(f"chunk {chunk} is damaged here, and will be repaired before it is changed: try again")


def is_early_version_of(target: Target, chunk: ChunkId, early: Version, write: pb.ChunkWrite) -> bool:
    """Whether the early version is the one that this change makes (P5). A whole chunk says what the content is."""
    if write.kind != pb.REPLACE:
        return target.early.is_made_by(chunk, change_of(write))
    return early.content == content_of(write) and (early.identity, early.stamp) == (identity_of(write), write.stamp)


def replaces_nothing(committed: Version, write: pb.ChunkWrite) -> bool:
    """Whether a syncing target has the content of this whole chunk, or a newer version, of this chain version (R5)."""
    if committed.lost or committed.chain_version != write.chain_version:
        return False
    return committed.version > write.version or committed.content == content_of(write)


def is_collectable(target: Target, record: Record | None, version: int) -> bool:
    if record is None or record.pending is not None or record.committed is None:
        return False
    return record.collectable(target.logical_time.now) and record.committed.version == version < target.first_version


def has_ample_room(target: Target, write: pb.ChunkWrite) -> bool:
    """Whether a write of a client will find room here, so that its payload may go ahead. After that a refusal cannot
    promise that the write had no effect (P11)."""
    engine = target.engine
    return engine.read_only is None and not target.may_refuse and engine.room_bytes >= _AMPLE_CHUNKS * write.chunk_bytes


def note_unforeseen(target: Target, chunk: ChunkId, error: ThreefsError) -> None:
    """Learn from the error of a change whose payload has gone ahead: its chunk is damaged, or the disk had less room
    than it said. The next change does not go ahead then, so its error says what is wrong."""
    if isinstance(error, CorruptChunk):
        target.note_damage(chunk)
    elif isinstance(error, NoSpace):
        target.note_refusal()


def report_damage(target: Target, chunk: ChunkId, error: ThreefsError) -> Unavailable:
    """Have the chunk repaired. Returns the error for the call that met the damage, and had no effect."""
    target.note_damage(chunk)
    return Unavailable(f"chunk {chunk} is damaged here, and will be repaired: {error}")


def outcome_unknown(error: ThreefsError) -> ThreefsError:
    """The error for a change that may have had an effect."""
    if error.retry is Retry.UNKNOWN:
        return error
    return OutcomeUnknown(f"the write is pending, and may be committed later: {error}")


def record_or_empty(target: Target, chunk: ChunkId) -> Record:
    """The record, empty if it is damaged: at a syncing target it will be replaced."""
    try:
        return target.engine.record(chunk) or _NO_RECORD
    except Corrupt:
        return _NO_RECORD


def _absent(target: Target, chunk: ChunkId) -> bool:
    committed = (target.engine.record(chunk) or _NO_RECORD).committed
    return committed is None or committed.removed


def _stamp(target: Target, write: pb.ChunkWrite) -> int:
    """The head stamps the writes of clients; the other targets take its stamp."""
    if not write.version:
        return target.logical_time.now
    target.logical_time.observe(write.stamp)
    return write.stamp
