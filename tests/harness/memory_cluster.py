"""A whole cluster in the test's own memory, as far as the client library can see: storage and a flat name space."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

from threefs_client import credentials
from threefs_client.cluster_values import ClusterValues
from threefs_client.context import ClientContext, atime_reporter_of, lease_of, precreated_of, session_closer_of
from threefs_client.data.read_ahead import ReadAheadBudget
from threefs_client.data.reads import Reader
from threefs_client.data.write_budget import WriteBudget
from threefs_client.metadata.call_retry import MetaClient
from threefs_client.options import Options
from threefs_meta.file.length import finish_appends, reserve_append
from threefs_meta.file.truncation import truncate_appends

from tests.harness.memory_storage import MemoryCluster, MemoryStorage, make_routing
from tests.harness.virtual_time import LOOP_CLOCK
from threefs.background import BackgroundTasks
from threefs.cluster.chunk_client import ChunkClient, ChunkLimits
from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, NotFound, SessionLost, ThreefsError
from threefs.ids import ClientId, InodeId, NodeId
from threefs.layout import FileLayout, chunk_count, from_wire
from threefs.routing import Node, NodeKind
from threefs.rpc.methods import Method
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import meta_pb2 as pb

META_ADDRESSES = ("meta-1:1", "meta-2:1")


class MemoryMeta:
    """Files by path; no directories. Answers every mutation only once."""

    def __init__(self, storage: MemoryStorage, chunk_bytes: int) -> None:
        self.storage = storage
        self.chunk_bytes = chunk_bytes
        self.files: dict[bytes, pb.Inode] = {}
        self.sessions: set[bytes] = set()
        self.nameless: dict[tuple[int, bytes], pb.Inode] = {}  # precreated, by number and session
        self.precreated = 0  # so far
        self.refusals: list[ThreefsError] = []  # of publications, each used up by one
        self.held: set[int] = set()  # open for reading, as reported
        self.accessed: list[int] = []  # files that were read, as reported
        self.lease = 1
        self.over_quota = False
        self.answered: dict[tuple[bytes, int], Any] = {}
        self.chunks: ChunkClient | None = None

    async def answer(self, name: str, request: Any) -> Any:
        key = None
        if "mutation" in request.DESCRIPTOR.fields_by_name and request.HasField("mutation"):
            key = (request.mutation.client, request.mutation.request)
            if key in self.answered:
                return self.answered[key]
        reply = await getattr(self, f"_{name.lower()}")(request)
        if key is not None:
            self.answered[key] = reply
        return reply

    def _at(self, place: pb.Place) -> pb.Inode:
        if place.base and not place.path:
            return self._inode(place.base)
        path = place.path.strip(b"/")
        if path not in self.files:
            raise NotFound(place.path.decode())
        return self.files[path]

    def _inode(self, number: int) -> pb.Inode:
        found = next((inode for inode in self.files.values() if inode.inode == number), None)
        if found is None:
            raise NotFound(f"inode {number}")
        return found

    async def _create(self, request: pb.CreateRequest) -> pb.CreateReply:
        if request.unnamed:
            [inode] = (await self._precreate(pb.PrecreateRequest(count=1, session=request.session))).inodes
            return pb.CreateReply(inode=inode, created=True, lease=self.lease)
        path = request.place.path.strip(b"/")
        if path in self.files:
            if request.exclusive:
                raise AlreadyExists
            if request.truncate:
                await self._cut(self.files[path], 0)
        else:
            layout = pb.Layout(chunk_bytes=request.layout.chunk_bytes or self.chunk_bytes, table_id=1, stripe=2)
            inode = pb.Inode(inode=len(self.files) + 2, type=pb.FILE, mode=request.mode, layout=layout)
            self.files[path] = inode
        self.sessions.add(request.session)
        return pb.CreateReply(inode=self.files[path], created=True, lease=self.lease, over_quota=self.over_quota)

    async def _precreate(self, request: pb.PrecreateRequest) -> pb.PrecreateReply:
        layout = pb.Layout(chunk_bytes=self.chunk_bytes, table_id=1, stripe=2)
        reply = pb.PrecreateReply(lease=self.lease)
        for _ in range(request.count):
            self.precreated += 1
            inode = pb.Inode(inode=1_000_000 + self.precreated, type=pb.FILE, unnamed=True, layout=layout)
            self.nameless[inode.inode, request.session] = inode
            reply.inodes.append(inode)
        return reply

    async def _publish(self, request: pb.PublishRequest) -> pb.InodeReply:
        if self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, SessionLost):
                del self.nameless[request.inode, request.session]
            raise refusal
        inode = self.nameless.get((request.inode, request.session))
        if inode is None:
            raise SessionLost("it has ended")
        path = request.place.path.strip(b"/")
        if path in self.files and not request.replace:
            raise AlreadyExists
        del self.nameless[request.inode, request.session]
        inode.unnamed, inode.nlink = False, 1
        inode.mode, inode.length = request.mode, request.length
        self.files[path] = inode
        return pb.InodeReply(inode=inode)

    async def _open(self, request: pb.OpenRequest) -> pb.OpenReply:
        inode = self._at(request.place)
        if request.session:
            self.sessions.add(request.session)
        if not request.session:
            return pb.OpenReply(inode=inode)
        return pb.OpenReply(inode=inode, lease=self.lease, over_quota=self.over_quota)

    async def _sync(self, request: Any) -> pb.InodeReply:
        inode = self._inode(request.inode)
        same_content = request.truncate_version == inode.truncate_version
        if same_content:
            inode.length = max(inode.length, request.length_hint)
        if request.exact or (request.written and not same_content):
            inode.length = await self._exact(inode)
        inode.change += request.written
        last = (request.appends_version, request.appends_end) if isinstance(request, pb.SyncRequest) else None
        finish_appends(inode, request.session, last)
        return pb.InodeReply(inode=inode, over_quota=self.over_quota)

    async def _close(self, request: pb.CloseRequest) -> pb.InodeReply:
        if self.nameless.pop((request.inode, request.session), None) is not None:
            return pb.InodeReply()
        if request.session not in self.sessions:
            raise SessionLost("it has ended")
        self.sessions.remove(request.session)
        return await self._sync(request)

    async def _reportatime(self, request: pb.ReportAtimeRequest) -> pb.ReportAtimeReply:
        self.accessed += request.inode
        return pb.ReportAtimeReply()

    async def _batch(self, request: pb.BatchRequest) -> pb.BatchReply:
        reply = pb.BatchReply()
        for change in request.changes:
            try:
                kind = change.WhichOneof("kind")
                if kind == "create":
                    reply.results.add(create=await self._create(change.create))
                elif kind == "close":
                    reply.results.add(file=await self._close(change.close))
                elif kind == "publish":
                    reply.results.add(file=await self._publish(change.publish))
                else:
                    reply.results.add(file=await self._sync(change.sync))
            except ThreefsError as error:
                reply.results.add(code=error.code)
        return reply

    async def _renewlease(self, request: pb.RenewLeaseRequest) -> pb.RenewLeaseReply:
        self.held |= set(request.hold)
        self.held -= set(request.drop)
        return pb.RenewLeaseReply(lease=0 if request.end else self.lease)

    async def _reserve(self, request: pb.ReserveRequest) -> pb.ReserveReply:
        inode = self._inode(request.inode)
        if not request.end:
            return pb.ReserveReply(offset=reserve_append(inode, request.session, request.length), inode=inode)
        inode.length = max(inode.length, request.end)
        return pb.ReserveReply(offset=inode.length, inode=inode)

    async def _statfs(self, request: pb.StatFsRequest) -> pb.StatFsReply:
        return pb.StatFsReply(capacity_bytes=10 << 30, free_bytes=3 << 30, replicas=3)

    async def _stat(self, request: pb.StatRequest) -> pb.InodeReply:
        return pb.InodeReply(inode=self._at(request.place))

    async def _batchstat(self, request: pb.BatchStatRequest) -> pb.BatchStatReply:
        reply = pb.BatchStatReply()
        for place in request.places:
            try:
                reply.results.add(inode=self._at(place))
            except ThreefsError as error:
                reply.results.add(code=error.code)
        for number, path in enumerate(request.paths):
            try:
                reply.inodes.append(self._at(pb.Place(base=request.base, path=path)))
            except ThreefsError as error:
                reply.inodes.add()
                reply.errors.add(number=number, code=error.code)
        return reply

    async def _truncate(self, request: pb.TruncateRequest) -> pb.InodeReply:
        inode = self._at(request.place)
        await self._cut(inode, request.length)
        return pb.InodeReply(inode=inode)

    async def _cut(self, inode: pb.Inode, length: int) -> None:
        assert self.chunks is not None
        layout, number = from_wire(inode.layout), InodeId(inode.inode)
        if any(one.end > length for one in inode.appends):
            inode.fence += 1
            for chain in layout.chains(self.storage.cluster.routing.tables[layout.table_id]):
                self.storage.fences[chain, number] = inode.fence
        count = chunk_count(layout.chunk_bytes, length)
        async for _, page in self.chunks.listing(layout, number, count, timeout_s=5):
            for row in page:
                await self.chunks.remove(layout, number, row.number, timeout_s=5)
        if count:
            within = length - (count - 1) * layout.chunk_bytes
            await self.chunks.truncate(layout, number, count - 1, within, timeout_s=5)
        truncate_appends(inode, length)
        inode.length = length
        inode.truncate_version += 1
        inode.change += 1

    async def _exact(self, inode: pb.Inode) -> int:
        assert self.chunks is not None
        return await self.chunks.file_length(from_wire(inode.layout), InodeId(inode.inode), timeout_s=5)


class MemoryPeers:
    """Peers and connections at once: every address is always connected, unless it is down."""

    def __init__(self, storage: MemoryStorage, meta: MemoryMeta) -> None:
        self.storage = storage
        self.meta = meta
        self.meta_calls: list[tuple[str, str, Any]] = []
        self.meta_faults: list[tuple[bool, Exception]] = []  # (after it was served, what happens instead)

    async def call(self, address: str, method: Method[Any, Any], request: Any, **more: Any) -> Any:
        if not address.startswith("meta"):
            return await self.storage.call(address, method, request, **more)
        self.meta_calls.append((address, method.name, request))
        after, error = self.meta_faults.pop(0) if self.meta_faults else (False, None)
        if error is not None and not after:
            raise error
        reply = await self.meta.answer(method.name, request)
        if error is not None:
            raise error
        # A copy, as over a wire.
        return type(reply).FromString(reply.SerializeToString())

    def has_feature(self, address: str, feature: int) -> bool:
        return self.storage.has_feature(address, feature)

    def live(self, address: str, traffic: TrafficClass = TrafficClass.DATA) -> "MemoryConnection | None":
        return None if address in self.storage.down else MemoryConnection(self, address)

    async def connect(
        self, address: str, timeout_s: float, traffic: TrafficClass = TrafficClass.DATA
    ) -> "MemoryConnection":
        await asyncio.sleep(0)
        return MemoryConnection(self, address)

    async def close(self) -> None:
        pass


@dataclasses.dataclass
class MemoryConnection:
    peers: MemoryPeers
    address: str
    is_local: bool = False
    outstanding: int = 0

    @property
    def frames(self) -> int:
        return self.peers.storage.frames

    def receive(self) -> None:
        self.peers.storage.receive()

    async def ping(self, timeout_s: float) -> None:
        pass

    def call(
        self,
        method: Method[Any, Any],
        request: Any,
        *,
        timeout_s: float,
        payload: Sequence[Any] = (),
        sink: Callable[..., Sequence[memoryview]] | None = None,
        ready: object = None,  # the answer comes at once
    ) -> asyncio.Future[Any]:
        return asyncio.ensure_future(
            self.peers.call(self.address, method, request, timeout_s=timeout_s, payload=payload, sink=sink)
        )


class MemoryFiles:
    """Everything together. `link` is what AsyncFileSystem and FileSystem are made from."""

    def __init__(self, chunk_bytes: int = 64 << 10, **options: Any) -> None:
        routing = make_routing()
        metas = {
            NodeId(1000 + n): Node(NodeId(1000 + n), NodeKind.META, "host", address, 1)
            for n, address in enumerate(META_ADDRESSES)
        }
        routing = dataclasses.replace(routing, nodes={**routing.nodes, **metas})
        self.cluster = MemoryCluster(routing)
        self.storage = MemoryStorage(self.cluster)
        self.meta = MemoryMeta(self.storage, chunk_bytes)
        self.peers = MemoryPeers(self.storage, self.meta)
        self.options = Options(**{"timeout_s": 5.0, **options})
        limits = ChunkLimits(first_pause_s=0.001, longest_pause_s=0.002, request_bytes=self.options.request_bytes)
        client = ClientId(b"c" * 16)
        self.meta.chunks = ChunkClient(self.peers, self.cluster, ClientId(b"m" * 16), clock=LOOP_CLOCK)
        meta = MetaClient(
            self.peers,
            self.cluster,
            client,
            credentials.ROOT,
            attempt_timeout_s=self.options.attempt_timeout_s,
            clock=LOOP_CLOCK,
        )
        lease = lease_of(client, meta, cast(Any, self.cluster), self.options.timeout_s, LOOP_CLOCK)
        session_closer = session_closer_of(meta, lease, LOOP_CLOCK)
        self.context = ClientContext(
            options=self.options,
            client=client,
            caller=credentials.ROOT,
            peers=cast(Any, self.peers),
            cluster=cast(Any, self.cluster),
            chunks=ChunkClient(self.peers, self.cluster, client, clock=LOOP_CLOCK, limits=limits),
            reader=Reader(self.peers, self.cluster, self.options, clock=LOOP_CLOCK),
            grants=None,
            meta=meta,
            lease=lease,
            session_closer=session_closer,
            precreated=precreated_of(meta, lease, session_closer, self.options, clock=LOOP_CLOCK, random=RANDOM),
            atime_reporter=atime_reporter_of(meta, self.options, LOOP_CLOCK),
            write_budget=WriteBudget(self.options.max_dirty_bytes),
            read_ahead_budget=ReadAheadBudget(self.options.max_read_ahead_bytes),
            cluster_values=ClusterValues(self.options, client, "a test"),
            background=BackgroundTasks(),
            clock=LOOP_CLOCK,
            random=RANDOM,
        )

    @staticmethod
    def layout(inode: pb.Inode) -> FileLayout:
        return from_wire(inode.layout)

    def reads(self) -> list[Any]:
        return [request for _, name, request in self.storage.calls if name == "Read"]
