"""Finds files that were removed after the backup from which the metadata was restored: their names are back, and their
bytes are not.

Such a file reads as zeros, as a hole does. But the chain of a removed chunk keeps a tombstone for about two hours. So
a file is found if no chunk of it is left, one of its chunks was removed, and its content has not changed since the
restore. Punching holes into all of a file leaves the same behind; the finding says so.
"""

from collections.abc import AsyncIterator, Sequence

from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.routing_watcher import RoutingSource
from threefs.errors import Retry, ThreefsError
from threefs.ids import ChunkId, InodeId
from threefs.layout import from_wire
from threefs.paging import next_place
from threefs.wire import meta_pb2 as pb
from threefs_fsck import file_names, replicas
from threefs_fsck.findings import Finding, Report
from threefs_fsck.metadata import PAGE_ROWS, MetaService, Progress

#: Inodes of which the names are asked for in one scan.
_PART = 1024


class RemovedFileCheck:
    def __init__(
        self,
        meta: MetaService,
        calls: replicas.StorageCalls,
        cluster: RoutingSource,
        chunks: ChunkClient,
        report: Report,
        *,
        progress: Progress,
    ) -> None:
        self._meta = meta
        self._calls = calls
        self._cluster = cluster
        self._chunks = chunks
        self._report = report
        self._progress = progress

    async def run(self, restored_ns: int) -> None:
        """`restored_ns` is when the store was restored; 0: never."""
        if not restored_ns:
            return
        found: set[int] = set()
        async for numbers in self._with_tombstones():
            for inode in await file_names.readable_inodes(self._meta, numbers):
                if _is_unchanged(inode, restored_ns) and not await self._may_have_bytes(inode):
                    found.add(inode.inode)
        removed = sorted(found)
        for start in range(0, len(removed), _PART):
            await self._report_files(removed[start : start + _PART])

    async def _with_tombstones(self) -> AsyncIterator[list[int]]:
        """Inodes of removed chunks, in pages. A chain that does not answer is left out: its chunks were reported."""
        for chain in self._cluster.routing.chains.values():
            if chain.tail is None:
                continue
            address, after, more = self._cluster.routing.address_of(chain.tail), None, True
            while more and address:
                try:
                    reply = await replicas.scan(
                        self._calls, address, chain.tail, chain.version, after, PAGE_ROWS, removed=True
                    )
                except ThreefsError as error:
                    if error.retry is Retry.NEVER:
                        raise
                    detail = (
                        f"which files were removed since the backup cannot be seen at chain {chain.chain_id}: {error}"
                    )
                    self._report.findings.append(Finding("chain_unavailable", detail))
                    break
                self._progress("removed chunks", len(reply.inode))
                if more := reply.more:
                    end = ChunkId(reply.last_inode, reply.last_index)
                    after = next_place(f"removed chunks of chain {chain.chain_id}", after, end)
                removed = zip(reply.inode, reply.health, strict=True)
                yield sorted({inode for inode, health in removed if health == replicas.REMOVED})

    async def _may_have_bytes(self, inode: pb.Inode) -> bool:
        """Also if a chain of the file does not answer, which is reported: nobody can say what it has."""
        layout, number = from_wire(inode.layout), InodeId(inode.inode)
        try:
            return bool(await replicas.end_of_file(self._chunks, self._cluster.routing, layout, number))
        except ThreefsError as error:
            if error.retry is Retry.NEVER:
                raise
            detail = f"whether inode {number} was removed since the backup cannot be seen: {error}"
            self._report.findings.append(Finding("chain_unavailable", detail, number))
            return True

    async def _report_files(self, numbers: Sequence[int]) -> None:
        async for name in file_names.names(self._meta, numbers):
            path = await file_names.path_of(self._meta, name)
            detail = (
                f"{path} was removed after the backup, or shortly before it a program punched holes into all of it: "
                "it reads as zeros; remove it, or restore its content"
            )
            self._report.findings.append(Finding("removed_file", detail, name.inode, name.parent, name.name))


def _is_unchanged(inode: pb.Inode, restored_ns: int) -> bool:
    """A file with a name and a length, whose content is as it was in the backup."""
    if inode.type != pb.FILE or not inode.nlink or not inode.length or not inode.HasField("layout"):
        return False
    return inode.birth_ns <= restored_ns and inode.mtime_ns <= restored_ns
