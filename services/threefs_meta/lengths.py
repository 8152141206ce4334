"""The length of a file: how it grows by what writers report, and how it is cut.

Growing. Writers report the end of what they have written, with the truncate version under which they wrote. Equal
version: the length becomes the larger one. Another version: the file was truncated meanwhile, and whether those bytes
came before or after only the chains know, so they are asked. The answer counts only while the truncate version stays.

Cutting, to length L. First all bytes from L on are removed from the chains, then one transaction sets the length and
raises the truncate version, provided that the inode is still exactly as it was before the bytes were removed.
- Why in this order: were the length set first, a crash would leave old bytes beyond it, and whoever made the file
  longer again would see them. This way a crash leaves zeros at the end of a file that still has its old length: the
  truncate has an unknown outcome, and what it destroyed stays destroyed.
- Why the proviso: a write that lands behind the sweep and is reported before the transaction changes the inode. It must
  not be cut off by the length alone with its bytes left behind, so the sweep is done again. A write that is reported
  later comes with an old truncate version, and is found on the chains.
- Why only listed versions are removed: a service may hang in the middle, while its caller asks another one, and then
  writes. So a page of chunks is listed with their versions, then the inode must still be what it was, and only then are
  those very versions removed. What was written later is another version, or was not listed, or had the inode changed.
- Why an extension sweeps too: bytes beyond the length may have been written and not been reported yet. They come before
  the truncate, so they must be gone.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from threefs.chunks import ChunkUpdate, Listed
from threefs.errors import ChunkChanged, FileTooLarge, InvalidArgument, IsADirectory
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.layout import FileLayout, chains_reached, from_wire, max_file_bytes
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context, FileChunks
from threefs_meta.mutations import Outside, look

#: Rounds against somebody who writes what is being cut.
_MOST_PASSES = 8


@dataclass(frozen=True, slots=True)
class Report:
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


class Growth:
    """Settles a report; keeps what the chains said between two runs of the transaction."""

    def __init__(self, context: Context, report: Report) -> None:
        self.report = report
        self._context = context
        self._measured: tuple[int, int] | None = None  # truncate version, end

    def settle(self, inode: pb.Inode) -> bool | Outside:
        """Change the record; True if it is to be stored. Raises FileTooLarge."""
        report = self.report
        check_length(inode, report.end)
        same = report.truncate_version == inode.truncate_version
        end = report.end if same else 0
        if report.exact or (not same and report.end > inode.length):
            if self._measured is None or self._measured[0] != inode.truncate_version:
                return Outside(lambda: self._measure(from_wire(inode.layout), inode.inode, inode.truncate_version))
            end = max(end, self._measured[1])
        longer = end > inode.length
        if not longer and not report.written:
            return False
        inode.length = max(inode.length, end)
        inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
        return True

    async def _measure(self, layout: FileLayout, inode: int, truncate_version: int) -> None:
        chains = self.report.chains(layout)
        end = await self._context.chunks.file_length(layout, InodeId(inode), chains=chains, timeout_s=CHUNKS_TIMEOUT_S)
        self._measured = truncate_version, end


class Cut:
    """Truncates; remembers between two runs of the transaction for which record the chunks were swept."""

    def __init__(self, context: Context, length: int) -> None:
        self._context = context
        self._length = length
        self._swept: bytes | None = None

    def settle(self, inode: pb.Inode, chains: int = 0) -> Outside | None:
        """Change the record, which is then to be stored, or say what has to be done first. Raises FileTooLarge.

        The file lies on the first `chains` of its stripe (0: on any), see `Namespace.chains_used`.
        """
        check_length(inode, self._length)
        record = inode.SerializeToString()
        if record != self._swept:
            return Outside(lambda: self._sweep(from_wire(inode.layout), inode.inode, chains, record))
        self._context.quotas.check_longer(inode, self._length - inode.length)
        inode.length = self._length
        inode.truncate_version += 1
        inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
        return None

    async def _sweep(self, layout: FileLayout, inode: int, chains: int, record: bytes) -> None:
        async def unchanged() -> bool:
            found = await look(self._context, lambda names: names.inode(inode))
            return found is not None and found.SerializeToString() == record

        if await cut(self._context.chunks, layout, InodeId(inode), self._length, chains, unchanged):
            self._swept = record


def widen(inode: pb.Inode, report: Report) -> None:
    """A write session ends: what was written under it may lie on more chains than was known."""
    chains = report.chains(from_wire(inode.layout))
    inode.chains_used = max(inode.chains_used, chains) if chains and inode.chains_used else 0


async def sweep(chunks: FileChunks, layout: FileLayout, inode: InodeId, chains: int = 0) -> int:
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


async def cut(
    chunks: FileChunks,
    layout: FileLayout,
    inode: InodeId,
    length: int,
    chains: int,
    unchanged: Callable[[], Awaitable[bool]],
) -> bool:
    """Remove the bytes from `length` on that were there before `unchanged` was asked. False: it said no, or writers
    were quicker every time."""
    first = length // layout.chunk_bytes
    for _ in range(_MOST_PASSES):
        refused = False
        async for chain, page in chunks.listing(layout, inode, first, chains=chains, timeout_s=CHUNKS_TIMEOUT_S):
            updates = _cuts(layout, inode, length, chain, page)
            if not updates:
                continue
            if not await unchanged():
                return False
            try:
                await chunks.apply(updates, timeout_s=CHUNKS_TIMEOUT_S)
            except ChunkChanged:  # somebody writes right now; the others were cut
                refused = True
        if not refused:
            return True
    return False


def _cuts(layout: FileLayout, inode: InodeId, length: int, chain: ChainId, page: Sequence[Listed]) -> list[ChunkUpdate]:
    last, within = divmod(length, layout.chunk_bytes)
    updates = []
    for row in page:
        kept = within if row.number == last else 0
        if kept and row.length <= kept:
            continue
        kind = storage_pb2.TRUNCATE if kept else storage_pb2.REMOVE
        chunk = ChunkId(inode, row.number)
        updates.append(ChunkUpdate(chain, chunk, kind, layout.chunk_bytes, length=kept, only_version=row.version))
    return updates


def check_length(inode: pb.Inode, length: int) -> None:
    """Raises IsADirectory, InvalidArgument, FileTooLarge."""
    if inode.type == pb.DIRECTORY:
        raise IsADirectory(f"inode {inode.inode} is a directory")
    if inode.type != pb.FILE:
        raise InvalidArgument(f"inode {inode.inode} is not a file")
    most = max_file_bytes(inode.layout.chunk_bytes)
    if length > most:
        raise FileTooLarge(f"{length} bytes are beyond the largest file ({most} bytes)")
