"""Services that say that more follows, and send the same page again: everybody who reads pages ends with an error."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from threefs_backup.follower import snapshot_pages
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_fsck import file_names, lost_files, replicas
from threefs_fsck.findings import Report
from threefs_fsck.metadata import MetadataCheck
from threefs_fsck.removed_files import RemovedFileCheck
from threefs_mount.cache import listing_rpc
from threefs_storage.chain.resync import Resync
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.peer_targets import PeerTargets

from tests.harness.chain_harness import chain_of, target_of
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.memory_storage import MemoryCluster
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.cluster.chunk_client import ChunkClient
from threefs.env.clock import CLOCK
from threefs.errors import ProtocolError
from threefs.ids import ChainId, ChunkId, ClientId, InodeId, TableId, TargetId
from threefs.layout import FileLayout
from threefs.rpc.methods import Method
from threefs.wire import backup_pb2, meta_pb2
from threefs.wire import storage_pb2 as pb

_SCANNED = pb.ScanChunksReply(
    inode=[7],
    index=[3],
    version=[1],
    length=[1],
    checksum=[1],
    pending=[False],
    health=[0],
    more=True,
    last_inode=7,
    last_index=3,
)
_PAGES: dict[str, Any] = {
    "ScanChunks": _SCANNED,
    "ListChunks": pb.ListChunksReply(index=[3], length=[1], version=[1], more=True),
    "Inventory": pb.InventoryReply(inode=[7], index=[3], version=[1], checksum=[1], digest=[1], more=True),
    "List": meta_pb2.ListReply(entries=[meta_pb2.Entry(name=b"a", inode=9, type=meta_pb2.FILE)], more=True),
    "ListNames": meta_pb2.ListNamesReply(names=b"a\0", inodes=bytes(8), types=b"\1", more=True),
    "ListTrash": meta_pb2.ListTrashReply(next=b"a", more=True),
    "ListQuotas": meta_pb2.ListQuotasReply(next=b"a"),
    "ReadSnapshot": backup_pb2.ReadSnapshotReply(pairs=[backup_pb2.StoredPair(key=b"a")], more=True),
    "FsckScan": meta_pb2.FsckScanReply(after=b"a", more=True),
}
_LAYOUT = FileLayout(1 << 16, TableId(1), 1)


class Endless:
    """Sends the same page each time. A reader that does not notice is stopped after some calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.files = MemoryFiles()
        self.files.peers.meta = self  # type: ignore[assignment]
        self.cluster = MemoryCluster()

    async def call(self, *words: Any, **more: Any) -> Any:
        return await self.answer(next(word.name for word in words if isinstance(word, Method)), None)

    async def answer(self, name: str, request: Any) -> Any:
        self.calls += 1
        assert self.calls < 20, "it is asked for the same page again and again"
        return _PAGES[name]

    async def probe(self, address: str, timeout_s: float) -> None:
        """It can be reached."""

    async def check(self, address: str, timeout_s: float) -> None:
        """Its connections work."""

    @property
    def chunks(self) -> ChunkClient:
        return ChunkClient(cast(Any, self), self.cluster, ClientId(b"c" * 16), clock=LOOP_CLOCK)

    @property
    def peers(self) -> PeerTargets:
        return PeerTargets(cast(Any, self), lambda: self.cluster.routing)

    @property
    def fs(self) -> AsyncFileSystem:
        return AsyncFileSystem(self.files.context)


def _checks_removed_files(endless: Endless) -> RemovedFileCheck:
    calls: Any = endless
    return RemovedFileCheck(calls, calls, endless.cluster, endless.chunks, Report(), progress=lambda *_: None)


def _chunks_of_a_chain(endless: Endless) -> AsyncIterator[Any]:
    routing = endless.cluster.routing
    return replicas.chunks(cast(Any, endless), routing, routing.chains[ChainId(1)])


async def _page(endless: Endless) -> AsyncIterator[Any]:
    first = 0
    while True:
        _, first = await endless.chunks.page(_LAYOUT, InodeId(7), first, timeout_s=5)
        yield first


async def _chunks_of_a_target(endless: Endless) -> AsyncIterator[Any]:
    yield await lost_files._held(cast(Any, endless), TargetId(101), "h:1")


async def _quotas(endless: Endless) -> AsyncIterator[Any]:
    yield await endless.fs.quotas.list()


async def _entries(endless: Endless) -> AsyncIterator[Any]:
    after = b""
    while True:
        page, _ = await listing_rpc.fetch_entries(endless.files.context, 7, after, 10)
        after = page[-1].name
        yield after


_READERS: dict[str, Callable[[Endless], AsyncIterator[Any]]] = {
    "chunks of a file": lambda it: it.chunks.listing(_LAYOUT, InodeId(7), timeout_s=5),
    "chunks of a file, of all chains": _page,
    "replicas of a chain": _chunks_of_a_chain,
    "tombstones": lambda it: _checks_removed_files(it)._with_tombstones(),
    "names of files": lambda it: file_names.names(cast(Any, it), [7]),
    "files": lambda it: lost_files._files(cast(Any, it)),
    "chunks of a target": _chunks_of_a_target,
    "the check of the metadata": lambda it: MetadataCheck(
        cast(Any, it), Report(), repair=False, progress=lambda *_: None
    )._pages(meta_pb2.FSCK_INODES),
    "a directory": lambda it: it.fs.list("/"),
    "a tree": lambda it: it.fs.walk("/"),
    "a directory on a mount": _entries,
    "the trash": lambda it: it.fs.trash.list(7),
    "quotas": _quotas,
    "a snapshot": lambda it: snapshot_pages(cast(Any, it)),
}


@pytest.mark.parametrize("reader", _READERS)
def test_a_list_that_does_not_go_on_ends_with_an_error(reader: str) -> None:
    async def read() -> None:
        async for _ in _READERS[reader](Endless()):
            pass

    with pytest.raises(ProtocolError, match="does not go on"):
        run_virtual(read())


async def test_targets_give_a_comparison_and_a_resync_up(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        endless = Endless()
        endless.cluster.routing = chain.routing()
        comparison = Comparison(endless.peers, clock=CLOCK)
        with pytest.raises(ProtocolError, match="does not go on"):
            await comparison._fetch_rows(chain[1].target, TargetId(target_of(2)), None, ChunkId(InodeId(1 << 40), 0))
        resync = Resync(cast(Any, None), cast(Any, None), endless.peers, cast(Any, None), clock=CLOCK)
        with pytest.raises(ProtocolError, match="does not go on"):
            async for _ in resync._pages(chain[1].target, TargetId(target_of(2)), chain.version):
                pass
