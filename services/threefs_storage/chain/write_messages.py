"""Writes between targets as messages: whole chunks, identities and exactly-once entries."""

from dataclasses import dataclass

from threefs.errors import InvalidArgument
from threefs.ids import ChunkId, WriteIdentity
from threefs.wire import common_pb2
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.early_versions import Change
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.exactly_once import Forgotten, OnceEntry

CLIENT_BYTES = 16
_KINDS = frozenset(int(kind) for kind in Kind)


@dataclass(frozen=True, slots=True)
class WholeChunk:
    """A version of a chunk, with the exactly-once results that travel with its whole content (R6)."""

    chunk: ChunkId
    version: Version
    entries: tuple[OnceEntry, ...]
    forgotten: Forgotten
    fresh: bool = False  # nothing was committed before it, so it may have any version
    base_version: int = 0  # of the removal that a fresh version comes after

    def message(self, target_id: int, chain_version: int) -> pb.ChunkWrite:
        """The message that replaces what the target has of this chunk, its results included."""
        version = self.version
        return pb.ChunkWrite(
            target=target_id,
            chain_version=chain_version,
            chunk=chunk_id(self.chunk),
            identity=_identity(*version.identity) if version.identity is not None else None,
            kind=pb.REPLACE,
            length=version.length,
            checksum=version.checksum,
            chunk_bytes=version.checksum_block_bytes << 8,
            version=version.version,
            removed=version.removed,
            lost=version.lost,
            stamp=version.stamp,
            fresh=self.fresh,
            base_version=self.base_version,
            forgotten_version=self.forgotten.version,
            forgotten_stamp=self.forgotten.stamp,
            entries=[
                pb.OnceEntry(
                    identity=_identity(entry.client, entry.channel, entry.seq),
                    version=entry.version,
                    length=entry.length,
                    checksum=entry.checksum,
                    stamp=entry.stamp,
                )
                for entry in self.entries
            ],
        )


def identity_of(write: pb.ChunkWrite) -> WriteIdentity | None:
    """None if the message replaces a whole chunk by a version that no client's write made. Raises InvalidArgument."""
    identity = write.identity
    is_known = not write.version if write.kind == pb.WRITE_PIECES else write.kind in _KINDS
    if not is_known or (write.kind == pb.REPLACE and not write.version):
        raise InvalidArgument(f"clients cannot send writes of kind {write.kind}")
    if write.kind == pb.REPLACE and not identity.client:
        return None
    if len(identity.client) != CLIENT_BYTES or not identity.seq:
        raise InvalidArgument(
            f"a write needs an identity: a client of {CLIENT_BYTES} bytes (it has {len(identity.client)}), and a "
            f"sequence number that is not 0 (it has {identity.seq})"
        )
    return WriteIdentity(identity.client, identity.channel, identity.seq)


def content_of(write: pb.ChunkWrite) -> tuple[int, int, int, bool]:
    """The content of a whole chunk by length and checksum, as `Version.content`."""
    return write.version, write.length, write.checksum, write.removed


def staged_version(target_id: int, chain_version: int, chunk: ChunkId, version: Version) -> pb.ForwardStagedRequest:
    """The message that forwards a version whose payload has gone ahead."""
    return pb.ForwardStagedRequest(
        target=target_id,
        chain_version=chain_version,
        chunk=chunk_id(chunk),
        identity=_identity(*version.identity) if version.identity is not None else None,
        version=version.version,
        length=version.length,
        checksum=version.checksum,
        removed=version.removed,
        stamp=version.stamp,
    )


def is_named_by(version: Version, request: pb.ForwardStagedRequest) -> bool:
    """Whether this is the version that is forwarded, made by the same write (P5)."""
    identity = request.identity
    maker = WriteIdentity(identity.client, identity.channel, identity.seq) if identity.client else None
    made = (version.version, version.removed, version.identity, version.stamp)
    return made == (request.version, request.removed, maker, request.stamp)


def change_of(write: pb.ChunkWrite) -> Change:
    """The change that a predecessor sends ahead, without its payload. Raises InvalidArgument if nothing like it is sent
    ahead."""
    if not write.version or write.kind == pb.REPLACE:
        raise InvalidArgument(f"a change of kind {write.kind} for version {write.version} cannot be sent ahead")
    return Change(
        write.version, identity_of(write), write.stamp, write.kind, write.offset, write.length, write.checksum
    )


def entries_of(write: pb.ChunkWrite) -> tuple[OnceEntry, ...]:
    """The exactly-once entries that came with a whole chunk."""
    return tuple(
        OnceEntry(e.identity.client, e.identity.channel, e.identity.seq, e.version, e.length, e.checksum, e.stamp)
        for e in write.entries
        if len(e.identity.client) == CLIENT_BYTES
    )


def chunk_id(chunk: ChunkId) -> common_pb2.ChunkId:
    return common_pb2.ChunkId(inode=chunk.inode, index=chunk.number)


def _identity(client: bytes, channel: int, seq: int) -> common_pb2.WriteIdentity:
    return common_pb2.WriteIdentity(client=client, channel=channel, seq=seq)
