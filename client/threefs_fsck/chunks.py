"""Checks the chunks: that each belongs to a file, lies where that file's layout says, within its length, and is the
same on all serving targets.

The order of looking makes it right while the cluster is in use. A file's inode is there before its first chunk and
goes after its last one; so a chunk that is still seen when its inode is known not to exist belongs to nobody. What
seems to differ between replicas is looked at again until it has stood still for a while.

A chunk that is missing on all replicas cannot be told from a hole: both read as zeros. `removed_files.py` finds files
whose chunks were removed since the backup from which the metadata was restored.
"""

from collections.abc import Iterable, Mapping, Sequence

from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.cluster.routing_watcher import RoutingSource
from threefs.env.clock import Clock
from threefs.errors import Corrupt, NotFound, Retry, ThreefsError, error_of
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.layout import DEFAULT_CHUNK_BYTES, end_of, from_wire
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_fsck import replicas
from threefs_fsck.findings import Finding, Report
from threefs_fsck.metadata import CALL_S, MetaService, Progress
from threefs_fsck.replicas import ReplicaStates

_STATS = 1024
#: A chain that changes, or a process of which ends, is read anew.
_ATTEMPTS = 5
_RECHECKS = 3
_PAUSE_S = 0.3
_TITLE = "chunks"


class ChunkCheck:
    def __init__(
        self,
        meta: MetaService,
        calls: replicas.StorageCalls,
        cluster: RoutingSource,
        chunks: ChunkClient,
        report: Report,
        *,
        clock: Clock,
        repair: bool,
        progress: Progress,
    ) -> None:
        self._meta = meta
        self._calls = calls
        self._cluster = cluster
        self._chunks = chunks
        self._report = report
        self._clock = clock
        self._repair = repair
        self._progress = progress
        self._ends: dict[int, int] = {}  # inode -> end of a chunk that lies behind its length

    async def run(self) -> None:
        for chain in sorted(self._cluster.routing.chains):
            await self._check_chain(chain)
        for inode, end in self._ends.items():
            await self._check_length(inode, end)
        chains = self._cluster.routing.chains.values()
        self._report.degraded_chains = sorted(c.chain_id for c in chains if len(c.serving) < len(c.members))

    async def _check_chain(self, chain: ChainId) -> None:
        findings_before = len(self._report.findings)
        for attempt in range(1, _ATTEMPTS + 1):
            routing = self._cluster.routing
            del self._report.findings[findings_before:]
            try:
                async for page in replicas.chunks(self._calls, routing, routing.chains[chain]):
                    self._progress(_TITLE, len(page))
                    self._report.chunks += len(page)
                    await self._check_page(chain, page)
                return
            except ThreefsError as error:
                if error.retry is Retry.NEVER:
                    raise
                if attempt == _ATTEMPTS:
                    self._add_finding("chain_unavailable", f"chain {chain} cannot be checked: {error}")
                else:
                    await self._cluster.refresh(routing.version, _PAUSE_S * attempt)
                    await self._clock.sleep(_PAUSE_S)

    async def _check_page(self, chain: ChainId, page: Mapping[ChunkId, ReplicaStates]) -> None:
        for chunk, states in page.items():
            if not replicas.are_consistent(states):
                await self._check_replicas(chain, chunk)
            if replicas.damaged(states):
                await self._check_damage(chain, chunk)
        inodes = await self._inodes(sorted({chunk.inode for chunk in page}))
        for chunk, states in page.items():
            inode = inodes[chunk.inode]
            if inode is None or inode.type != pb.FILE:
                await self._check_orphan(chain, chunk)
            else:
                await self._check_place(chain, chunk, inode, _length(states))

    async def _inodes(self, numbers: Sequence[int]) -> dict[int, pb.Inode | None]:
        """None: there is none."""
        found: dict[int, pb.Inode | None] = {}
        for start in range(0, len(numbers), _STATS):
            part = numbers[start : start + _STATS]
            request = pb.BatchStatRequest(places=[pb.Place(base=number) for number in part])
            reply = await self._meta.call(methods.BATCH_STAT, request, timeout_s=CALL_S)
            for number, result in zip(part, reply.results, strict=True):
                if result.code == Corrupt.code:  # the check of inodes reports it; its chunks are left alone
                    found[number] = pb.Inode(inode=number, type=pb.FILE)
                elif result.code not in (0, NotFound.code):
                    raise error_of(result.code, f"inode {number}")
                else:
                    found[number] = None if result.code else result.inode
        return found

    # ---- one chunk ----

    async def _check_replicas(self, chain: ChainId, chunk: ChunkId) -> None:
        before: ReplicaStates | None = None
        for _ in range(_RECHECKS):
            await self._clock.sleep(_PAUSE_S)
            routing = self._cluster.routing
            now = await replicas.replica_states(self._calls, routing, routing.chains[chain], chunk)
            if replicas.are_consistent(now) or not any(now.values()) or (before is not None and now != before):
                return
            before = now
        assert before is not None, "it was looked at"
        versions = ", ".join(f"{target}: {row.version if row else 'none'}" for target, row in before.items())
        kind = "replica_differs" if all(before.values()) else "missing_chunk"
        self._add_finding(
            kind, f"{_description(chunk)} is not the same on all targets; versions {versions}", chunk.inode
        )

    async def _check_damage(self, chain: ChainId, chunk: ChunkId) -> None:
        """Report damage that a target knows of, if it is still there after a pause: repairs are under way."""
        await self._clock.sleep(_PAUSE_S)
        routing = self._cluster.routing
        now = await replicas.replica_states(self._calls, routing, routing.chains[chain], chunk)
        damaged = replicas.damaged(now)
        if damaged and len(damaged) == len(now):
            detail = f"{_description(chunk)} cannot be read from any serving target: restore the file, or remove it"
            self._add_finding("lost_chunk", detail, chunk.inode)
        elif damaged:
            self._add_finding(
                "damaged_replica",
                f"{_description(chunk)} is damaged on targets {damaged}, and not repaired",
                chunk.inode,
            )

    async def _check_orphan(self, chain: ChainId, chunk: ChunkId) -> None:
        if not await self._exists(chain, chunk):
            return
        repaired = self._repair and await self._remove(chain, chunk)
        self._add_finding("orphan_chunk", f"{_description(chunk)} belongs to no file", chunk.inode, repaired)

    async def _check_place(self, chain: ChainId, chunk: ChunkId, inode: pb.Inode, length: int) -> None:
        if not inode.HasField("layout"):
            return
        layout = from_wire(inode.layout)
        own = self._chunks.chain_of(layout, chunk.number)
        if own != chain:
            # A chunk that its own chain lacks may be the only copy of these bytes, so it is kept.
            surplus = chunk.number * layout.chunk_bytes >= inode.length or await self._exists(own, chunk)
            repaired = self._repair and surplus and await self._remove(chain, chunk)
            detail = f"{_description(chunk)} lies on chain {chain}, but its file keeps it on chain {own}"
            self._add_finding("misplaced_chunk", detail, chunk.inode, repaired)
            return
        end = end_of(layout.chunk_bytes, chunk.number, length)
        if length and end > inode.length:
            self._ends[chunk.inode] = max(end, self._ends.get(chunk.inode, 0))

    async def _exists(self, chain: ChainId, chunk: ChunkId) -> bool:
        routing = self._cluster.routing
        return any((await replicas.replica_states(self._calls, routing, routing.chains[chain], chunk)).values())

    async def _remove(self, chain: ChainId, chunk: ChunkId) -> bool:
        update = ChunkUpdate(chain, chunk, storage_pb2.REMOVE, DEFAULT_CHUNK_BYTES)
        try:
            await self._chunks.apply([update], timeout_s=CALL_S)
        except ThreefsError:
            return False
        return True

    # ---- lengths ----

    async def _check_length(self, number: int, end: int) -> None:
        """Check the inode, then the chains, then the inode again: a truncate removes chunks before it sets the
        length."""
        if not await self._recheck_length(number, end):
            return
        inode = (await self._inodes([number]))[number]
        if inode is None:
            return
        layout = from_wire(inode.layout)
        try:
            end = await replicas.end_of_file(self._chunks, self._cluster.routing, layout, InodeId(number))
        except ThreefsError as error:
            if error.retry is Retry.NEVER:
                raise
            self._add_finding("chain_unavailable", f"the length of inode {number} cannot be checked: {error}", number)
            return
        found = await self._recheck_length(number, end) if end else []
        for finding in found:
            repaired = self._repair and await self._sync_length(inode)
            self._add_finding("wrong_length", finding.detail, number, repaired)

    async def _recheck_length(self, number: int, end: int) -> Sequence[pb.FsckFinding]:
        request = pb.FsckRecheckRequest(subjects=[pb.FsckSubject(inode=number, end=end)])
        return (await self._meta.call(methods.FSCK_RECHECK, request, timeout_s=CALL_S)).findings

    async def _sync_length(self, inode: pb.Inode) -> bool:
        request = pb.SyncRequest(
            mutation=self._meta.mutation(),
            inode=inode.inode,
            truncate_version=inode.truncate_version,
            exact=True,
        )
        try:
            await self._meta.call(methods.SYNC, request, timeout_s=CALL_S)
        except ThreefsError:
            return False
        return True

    def _add_finding(self, kind: str, detail: str, inode: int = 0, repaired: bool = False) -> None:
        self._report.findings.append(Finding(kind, detail, inode, repaired=repaired))


def _length(states: ReplicaStates) -> int:
    rows: Iterable[replicas.ReplicaState | None] = states.values()
    return max((row.length for row in rows if row is not None), default=0)


def _description(chunk: ChunkId) -> str:
    return f"chunk {chunk.number} of inode {chunk.inode}"
