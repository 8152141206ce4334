"""The length of a file, and how it grows by what writers report. `file/truncation.py` says how it is truncated.

A writer reports the end of what it has written, with the truncate version under which it wrote. If the inode has the
same version, the larger length counts. Otherwise the file was truncated in between, and only the chains know whether
those bytes came before or after the truncate, so they are asked. Their answer counts only while the truncate version
stays. If the outcome of a write is not known (`exact`), the fence of the inode is raised before the chains are asked:
such a write has ended then, or never has an effect. That is not done for a writer that was silent: it may have slept,
and its bytes that are still to be sent must not be refused.
"""

from dataclasses import dataclass

from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import FileTooLarge, InvalidArgument, IsADirectory
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.inflight_ranges import writer_of
from threefs.layout import FileLayout, chains_reached, from_wire, max_file_bytes
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context
from threefs_meta.locks import fencing
from threefs_meta.transactions import NeedsChunkIo

#: Appends under way that each inode remembers. With more, readers may see zeros in place of the oldest.
_MAX_APPENDS = 64
#: A writer syncs within two seconds. A time that is further away is that of a wrong clock, or from before a long wait.
_MAX_SHOWN_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class LengthReport:
    """A writer's report about the length."""

    end: int
    truncate_version: int
    exact: bool  # the writer does not know its end: ask the chains
    written: bool  # the content has changed
    attempted_end: int = 0  # the end of everything that it has sent, acknowledged or not; 0: unknown
    shown_ns: int = 0  # when it has written, as programs beside it have seen; 0: none has
    by_writer: bool = True  # else the writer was silent; it may live, and go on under another session

    @classmethod
    def of(cls, request: pb.SyncRequest | pb.CloseRequest) -> "LengthReport":
        return cls(
            request.length_hint,
            request.truncate_version,
            request.exact,
            request.written,
            request.attempted_end,
            request.shown_ns,
        )

    def chains(self, layout: FileLayout) -> int:
        """On how many chains of the stripe the writer's bytes can lie; 0 means on any."""
        if self.exact and not self.attempted_end:
            return 0
        return chains_reached(layout, max(self.end, self.attempted_end))


class LengthUpdate:
    """Applies a report; keeps what the chains said between two attempts of the transaction."""

    def __init__(self, context: Context, report: LengthReport) -> None:
        self.report = report
        self._context = context
        self._measured: tuple[int, int] | None = None  # truncate version, end

    def apply(self, inode: pb.Inode) -> bool | NeedsChunkIo:
        """Change the record; True if the caller is to store it. Raises FileTooLarge."""
        report, before = self.report, inode.length
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
        assert inode.length >= before, "a report never makes a file shorter (I11)"
        if inode.append_end <= inode.length:
            inode.append_end = 0
        self._set_times(inode)
        return True

    def _set_times(self, inode: pb.Inode) -> None:
        """A time that a program has seen stays: git remembers it before it closes the file."""
        now_ns, shown_ns = self._context.clock.wall_ns(), self.report.shown_ns
        if shown_ns >= inode.mtime_ns and abs(now_ns - shown_ns) <= _MAX_SHOWN_NS:
            inode.mtime_ns, inode.ctime_ns = shown_ns, max(shown_ns, inode.ctime_ns)
        else:
            inode.mtime_ns = inode.ctime_ns = now_ns

    async def _measure(self, layout: FileLayout, inode: int, truncate_version: int) -> None:
        chains = self.report.chains(layout)
        if self.report.exact and self.report.by_writer:
            await fencing.end_writes(self._context, inode, chains)
        end = await self._context.chunks.file_length(layout, InodeId(inode), chains=chains, timeout_s=CHUNKS_TIMEOUT_S)
        self._measured = truncate_version, end


def reserve_append(inode: pb.Inode, session: bytes, length: int) -> int:
    """The offset for an append of `length` bytes: behind all appends that have a place. The length of the file stays,
    because readers must not see the range before its bytes exist."""
    offset = max(inode.length, inode.append_end)
    assert not inode.appends or inode.appends[-1].end <= offset, "two appends never get the same bytes"
    inode.append_end = offset + length
    if len(inode.appends) >= _MAX_APPENDS:
        del inode.appends[0]
    version = inode.truncate_version
    inode.appends.add(writer=writer_of(session), offset=offset, end=offset + length, truncate_version=version)
    return offset


def finish_appends(inode: pb.Inode, session: bytes, last: tuple[int, int] | None = None) -> bool:
    """The appends of the session up to the `last` one, (truncate version, end), are over, written or not. None: all
    are. True if there was any.

    The end alone would not do: after a truncate the next place may lie before one that was finished earlier.
    """
    if not inode.appends or not session:
        return False
    writer = writer_of(session)
    left = [
        one
        for one in inode.appends
        if one.writer != writer or (last is not None and (one.truncate_version, one.end) > last)
    ]
    ended = len(left) < len(inode.appends)
    if ended:
        del inode.appends[:]
        inode.appends.extend(left)
    return ended


def widen_chains_used(inode: pb.Inode, report: LengthReport) -> None:
    """A write session ends: its bytes may lie on more chains than was known before."""
    before, chains = inode.chains_used, report.chains(from_wire(inode.layout))
    inode.chains_used = max(before, chains) if chains and before else 0
    assert inode.chains_used == 0 or inode.chains_used >= before > 0, "a file never seems to lie on fewer chains"


async def remove_chunks(context: Context, chain: ChainId, inode: pb.Inode, timeout_s: float) -> None:
    """Remove all chunks on a chain of a file that nobody can open any more."""
    number, deadline = InodeId(inode.inode), context.clock.monotonic() + timeout_s
    async for page in context.chunks.chain_listing(chain, number, 0, deadline):
        updates = [
            ChunkUpdate(chain, ChunkId(number, row.number), storage_pb2.REMOVE, inode.layout.chunk_bytes, freed=True)
            for row in page
        ]
        await context.chunks.apply(updates, timeout_s=timeout_s)


def check_length(inode: pb.Inode, length: int) -> None:
    """Raises IsADirectory, InvalidArgument, FileTooLarge."""
    if inode.type == pb.DIRECTORY:
        raise IsADirectory(f"inode {inode.inode} is a directory")
    if inode.type != pb.FILE:
        raise InvalidArgument(f"inode {inode.inode} is not a file")
    most = max_file_bytes(inode.layout.chunk_bytes)
    if length > most:
        raise FileTooLarge(
            f"a file with chunks of {inode.layout.chunk_bytes} bytes has at most {most} bytes, not {length}"
        )
