"""The names of files, found by their inode numbers."""

from collections.abc import AsyncIterator, Sequence

from threefs_client import paths

from threefs.ids import ROOT
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_fsck.metadata import CALL_S, PAGE_ROWS, MetaService

#: Directories on one path, at most: a damaged store may have a loop.
_MAX_DEPTH = 4096


async def names(meta: MetaService, numbers: Sequence[int]) -> AsyncIterator[pb.FsckName]:
    """All names of these inodes, at most 4096, in one walk through all entries."""
    after, more = b"", True
    while more:
        request = pb.FsckScanRequest(table=pb.FSCK_ENTRIES, after=after, limit=PAGE_ROWS, wanted=numbers)
        page = await meta.call(methods.FSCK_SCAN, request, timeout_s=CALL_S)
        if more := page.more:
            after = next_place("names", after, page.after)
        for name in page.names:
            yield name


async def path_of(meta: MetaService, name: pb.FsckName) -> str:
    return "/" + "/".join([*await _above(meta, name.parent), paths.decode(name.name)])


async def readable_inodes(meta: MetaService, numbers: Sequence[int]) -> list[pb.Inode]:
    """Those that exist and can be read."""
    if not numbers:
        return []
    request = pb.BatchStatRequest(places=[pb.Place(base=number) for number in numbers])
    reply = await meta.call(methods.BATCH_STAT, request, timeout_s=CALL_S)
    return [result.inode for result in reply.results if not result.code]


async def _above(meta: MetaService, directory: int) -> list[str]:
    """The names of the directories above an entry, from the root on."""
    found: list[str] = []
    while directory != ROOT and len(found) < _MAX_DEPTH:
        inodes = await readable_inodes(meta, [directory])
        if not inodes:
            return [f"(directory {directory})", *found]
        found.insert(0, paths.decode(inodes[0].name))
        directory = inodes[0].parent
    return found
