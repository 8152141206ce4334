"""The length of a file: how it grows by what writers report. How it is cut is told in `cutting`.

Growing. Writers report the end of what they have written, with the truncate version under which they wrote. Equal
version: the length becomes the larger one. Another version: the file was truncated meanwhile, and whether those bytes
came before or after only the chains know, so they are asked. The answer counts only while the truncate version stays.
"""

from dataclasses import dataclass

from threefs.cluster.chunk_client import ChunkUpdate
from threefs.errors import FileTooLarge, InvalidArgument, IsADirectory
from threefs.ids import ChunkId, InodeId
from threefs.inflight_ranges import writer_of
from threefs.layout import FileLayout, chains_reached, from_wire, max_file_bytes
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context, FileChunks
from threefs_meta.transactions import NeedsChunkIo

#: Appends under way that are remembered for each file. With more, readers may see zeros in place of the oldest.
_MAX_APPENDS = 64


@dataclass(frozen=True, slots=True)
class LengthReport:
    """What a writer says about the length."""

    end: int
    truncate_version: int
    exact: bool
    written: bool
    attempted_end: int = 0  # of all that it has sent, acknowledged or not; 0: unknown

    def chains(self, layout: FileLayout) -> int:
        """How many chains of the stripe its bytes can lie on; 0: any."""
        if self.exact and not self.attempted_end:
            return 0
        return chains_reached(layout, max(self.end, self.attempted_end))


class LengthUpdate:
    """Settles a report; keeps what the chains said between two runs of the transaction."""

    def __init__(self, context: Context, report: LengthReport) -> None:
        self.report = report
        self._context = context
        self._measured: tuple[int, int] | None = None  # truncate version, end

    def apply(self, inode: pb.Inode) -> bool | NeedsChunkIo:
        """Change the record; True if it is to be stored. Raises FileTooLarge."""
        report = self.report
        check_length(inode, report.end)
        same = report.truncate_version == inode.truncate_version
        end = report.end if same else 0
        if report.exact or (not same and report.end > inode.length):
            if self._measured is None or self._measured[0] != inode.truncate_version:
                return NeedsChunkIo(lambda: self._measure(from_wire(inode.layout), inode.inode, inode.truncate_version))
            end = max(end, self._measured[1])
        longer = end > inode.length
        if not longer and not report.written:
            return False
        inode.length = max(inode.length, end)
        if inode.append_end <= inode.length:
            inode.append_end = 0
        inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
        return True

    async def _measure(self, layout: FileLayout, inode: int, truncate_version: int) -> None:
        chains = self.report.chains(layout)
        end = await self._context.chunks.file_length(layout, InodeId(inode), chains=chains, timeout_s=CHUNKS_TIMEOUT_S)
        self._measured = truncate_version, end


def reserve_append(inode: pb.Inode, session: bytes, length: int) -> int:
    """Where so many bytes go that the session is about to append: behind all that have a place. The length stays, as
    nobody must see them before they are there."""
    offset = max(inode.length, inode.append_end)
    inode.append_end = offset + length
    if len(inode.appends) >= _MAX_APPENDS:
        del inode.appends[0]
    inode.appends.add(writer=writer_of(session), offset=offset, end=offset + length)
    return offset


def finish_appends(inode: pb.Inode, session: bytes, end: int | None = None) -> bool:
    """What the session has appended up to `end` (None: all of it) is there, or will never be. True if there was any."""
    if not inode.appends or not session:
        return False
    writer = writer_of(session)
    left = [one for one in inode.appends if one.writer != writer or (end is not None and one.end > end)]
    ended = len(left) < len(inode.appends)
    if ended:
        del inode.appends[:]
        inode.appends.extend(left)
    return ended


def widen_chains_used(inode: pb.Inode, report: LengthReport) -> None:
    """A write session ends: what was written under it may lie on more chains than was known."""
    chains = report.chains(from_wire(inode.layout))
    inode.chains_used = max(inode.chains_used, chains) if chains and inode.chains_used else 0


async def remove_chunks(chunks: FileChunks, layout: FileLayout, inode: InodeId, chains: int = 0) -> int:
    """Remove all chunks of a file that nobody can open any more, from the first `chains` of its stripe (0: all of it).
    Returns how many there were."""
    removed = 0
    async for chain, page in chunks.listing(layout, inode, chains=chains, timeout_s=CHUNKS_TIMEOUT_S):
        updates = [
            ChunkUpdate(chain, ChunkId(inode, row.number), storage_pb2.REMOVE, layout.chunk_bytes) for row in page
        ]
        await chunks.apply(updates, timeout_s=CHUNKS_TIMEOUT_S)
        removed += len(updates)
    return removed


def check_length(inode: pb.Inode, length: int) -> None:
    """Raises IsADirectory, InvalidArgument, FileTooLarge."""
    if inode.type == pb.DIRECTORY:
        raise IsADirectory(f"inode {inode.inode} is a directory")
    if inode.type != pb.FILE:
        raise InvalidArgument(f"inode {inode.inode} is not a file")
    most = max_file_bytes(inode.layout.chunk_bytes)
    if length > most:
        raise FileTooLarge(f"{length} bytes are beyond the largest file ({most} bytes)")
