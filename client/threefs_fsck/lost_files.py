"""Which files lose bytes when a chain goes on with what one of its targets has.

A file loses bytes if it has chunks on the chain that the target lacks. Whether the other chunks are as new as those of
the lost disks nobody can know. Nor can a chunk that the target lacks be told from a hole: a file with holes may be
counted although it loses nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from threefs.ids import ChainId, ChunkId, TableId, TargetId
from threefs.layout import chunk_count, from_wire
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.rpc.methods import SCAN_CHUNKS
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_fsck import file_names, replicas
from threefs_fsck.metadata import CALL_S, PAGE_ROWS, MetaService

MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class LosingFile:
    path: str
    chunks: int  # of the file on the chain
    lacking: int  # of them that the target does not have


@dataclass(slots=True)
class LostFiles:
    named: list[LosingFile] = field(default_factory=list)
    more: int = 0  # files that lose bytes as well
    others: int = 0  # files with bytes on the chain of which the target has each chunk, maybe an older version


async def find(
    meta: MetaService,
    calls: replicas.StorageCalls,
    tables: Mapping[TableId, Sequence[ChainId]],
    chain: ChainId,
    target: TargetId,
    address: str,
) -> LostFiles:
    """What is lost when the target at that address serves the chain alone. It need not serve now.

    Raises the errors of services that do not answer.
    """
    held = await _held(calls, target, address)
    result, losing = LostFiles(), dict[int, tuple[int, int]]()
    async for inode in _files(meta):
        chunks = _chunks_on(inode, tables, chain)
        lacking = chunks - held[inode.inode]
        if chunks and lacking <= 0:
            result.others += 1
        elif chunks and len(losing) < MAX_NAMED:
            losing[inode.inode] = chunks, lacking
        elif chunks:
            result.more += 1
    paths = await _paths(meta, list(losing))
    result.named = [LosingFile(paths.get(inode, f"(inode {inode})"), *found) for inode, found in losing.items()]
    return result


async def _held(calls: replicas.StorageCalls, target: TargetId, address: str) -> Counter[int]:
    """How many chunks of each inode the target has, undamaged."""
    found: Counter[int] = Counter()
    after, more = None, True
    while more:
        request = storage_pb2.ScanChunksRequest(target=target, limit=PAGE_ROWS, any_state=True)
        if after is not None:
            request.behind, request.inode, request.index = True, after.inode, after.number
        reply = await calls.call(address, SCAN_CHUNKS, request, timeout_s=replicas.CALL_S)
        rows = zip(reply.inode, reply.version, reply.health, strict=True)
        found.update(inode for inode, version, health in rows if version and health == replicas.GOOD)
        if more := reply.more:
            after = next_place(f"chunks of target {target}", after, ChunkId(reply.last_inode, reply.last_index))
    return found


async def _files(meta: MetaService) -> AsyncIterator[pb.Inode]:
    """All files that have a name and bytes."""
    after, more = b"", True
    while more:
        request = pb.FsckScanRequest(table=pb.FSCK_INODES, after=after, limit=PAGE_ROWS)
        page = await meta.call(methods.FSCK_SCAN, request, timeout_s=CALL_S)
        if more := page.more:
            after = next_place("inodes", after, page.after)
        numbers = [inode for inode, kind in zip(page.inode, page.type, strict=True) if kind == pb.FILE]
        for inode in await file_names.readable_inodes(meta, numbers):
            if inode.nlink and inode.length and inode.HasField("layout"):
                yield inode


def _chunks_on(inode: pb.Inode, tables: Mapping[TableId, Sequence[ChainId]], chain: ChainId) -> int:
    """How many chunks the file has on the chain, if it has no holes."""
    layout = from_wire(inode.layout)
    table = tables.get(layout.table_id, ())
    if chain not in table:
        return 0
    count = chunk_count(layout.chunk_bytes, inode.length)
    places = [place for place, found in enumerate(layout.chains(table)) if found == chain]
    return sum(len(range(place, count, layout.stripe)) for place in places)


async def _paths(meta: MetaService, numbers: Sequence[int]) -> dict[int, str]:
    """One path of each."""
    found: dict[int, str] = {}
    if numbers:
        async for name in file_names.names(meta, numbers):
            if name.inode not in found:
                found[name.inode] = await file_names.path_of(meta, name)
    return found
