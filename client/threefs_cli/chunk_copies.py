"""The chunk that holds a byte of a file, and what each member of its chain has of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

from threefs_client import AsyncFileSystem

from threefs.errors import InvalidArgument, ThreefsError
from threefs.ids import ChainId, ChunkId
from threefs.rpc.methods import INSPECT_CHUNK
from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2
from threefs_cli import chain_rows
from threefs_cli.cluster_state import ClusterState, read_state

_CALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of a file."""

    path: str
    offset: int


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of one member; an error if it has not answered."""

    member: pb.ChainMember
    reply: storage_pb2.InspectChunkReply | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk with all its copies."""

    place: Place
    length: int  # of the file
    chunk: ChunkId
    chunk_bytes: int
    chain: pb.Chain
    state: ClusterState
    copies: list[Copy]

    @property
    def agree(self) -> bool:
        """Whether all serving members have the same committed version, or one of them has a version on its way."""
        serving = [copy.reply for copy in self.copies if copy.member.state == pb.SERVING]
        if any(reply is None for reply in serving):
            return False
        replies = [reply for reply in serving if reply is not None]
        if any(reply.HasField("pending") for reply in replies):
            return True
        return len({_content(reply) for reply in replies}) <= 1


async def find(fs: AsyncFileSystem, url: str, place: Place) -> Found:
    """Raises NotFound, InvalidArgument."""
    attributes = await fs.stat(place.path)
    layout = attributes.layout
    if layout is None:
        raise InvalidArgument(f"{place.path} is a {attributes.kind}: only files have chunks")
    if place.offset >= layout.max_file_bytes:
        raise InvalidArgument(
            f"no file has a byte {place.offset}: with its chunk size {layout.max_file_bytes} are the most"
        )
    state = await read_state(fs, url)
    table = next((one for one in state.status.tables if one.table_id == layout.table_id), pb.ChainTable())
    number = place.offset // layout.chunk_bytes
    chain = state.chain(layout.chain_of([ChainId(one) for one in table.chains], number))
    chunk = ChunkId(attributes.inode, number)
    copies = await asyncio.gather(*(_inspect(fs, state, member, chunk) for member in chain.members))
    return Found(place, attributes.length, chunk, layout.chunk_bytes, chain, state, list(copies))


async def _inspect(fs: AsyncFileSystem, state: ClusterState, member: pb.ChainMember, chunk: ChunkId) -> Copy:
    node = state.node_status(member.target_id)
    if node is None or not node.node.address:
        return Copy(member, None, "its process was never started")
    request = storage_pb2.InspectChunkRequest(target=member.target_id, inode=chunk.inode, index=chunk.number)
    try:
        reply = await fs.context.peers.call(node.node.address, INSPECT_CHUNK, request, timeout_s=_CALL_TIMEOUT_S)
    except ThreefsError as error:
        return Copy(member, None, str(error))
    return Copy(member, reply)


def describe(found: Found) -> dict[str, Any]:
    """As JSON."""
    return {
        "path": found.place.path,
        "offset": found.place.offset,
        "inode": found.chunk.inode,
        "chunk": found.chunk.number,
        "chunk_bytes": found.chunk_bytes,
        "chain": {
            name: value for name, value in chain_rows.chain_row(found.state, found.chain).items() if name != "members"
        },
        "agree": found.agree,
        "members": [chain_rows.member_row(found.state, copy.member) | describe_copy(copy) for copy in found.copies],
    }


def describe_copy(copy: Copy) -> dict[str, Any]:
    reply = copy.reply or storage_pb2.InspectChunkReply()
    return {
        "error": copy.error or None,
        "committed": _version(reply.committed) if reply.HasField("committed") else None,
        "pending": _version(reply.pending) | {"early": reply.early} if reply.HasField("pending") else None,
        "damaged": reply.damaged,
        "unreadable": reply.unreadable,
    }


def copy_text(copy: Copy) -> str:
    """The copy of a member, in one line."""
    if copy.reply is None:
        return f"no answer: {copy.error}"
    if copy.reply.unreadable:
        return "its record cannot be read"
    said = [version_text(copy.reply.committed) if copy.reply.HasField("committed") else "nothing"]
    if copy.reply.HasField("pending"):
        said.append(("early: " if copy.reply.early else "pending: ") + version_text(copy.reply.pending))
    if copy.reply.damaged:
        said.append("DAMAGED")
    return "; ".join(said)


def version_text(found: storage_pb2.ChunkVersion) -> str:
    what = (
        "removed" if found.removed else "LOST" if found.lost else f"{found.length} bytes, CRC32C {found.checksum:08x}"
    )
    return f"version {found.version}, {what}"


def _version(found: storage_pb2.ChunkVersion) -> dict[str, Any]:
    return {
        "version": found.version,
        "chain_version": found.chain_version,
        "length_bytes": found.length,
        "checksum": f"{found.checksum:08x}",
        "removed": found.removed,
        "lost": found.lost,
    }


def _content(reply: storage_pb2.InspectChunkReply) -> tuple[int, int, int, bool] | None:
    if reply.unreadable or not reply.HasField("committed"):
        return None
    found = reply.committed
    return found.version, found.length, found.checksum, found.removed
