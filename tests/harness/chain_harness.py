"""A chain of storage services inside one test: real engines, real servers on loopback sockets, one event loop.

Each replica learns routing when the test says so, and what it sends to others passes a hook of the test.
"""

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.scheduling.background_scheduler import foreground_of, no_foreground
from threefs_storage.service import Storage
from threefs_storage.target import Target
from threefs_storage.targets import Targets

from tests.harness.chunk_engine import NO_OVERLAYS
from tests.harness.processes import free_port
from tests.harness.rpc import identity
from threefs.background import cancel_and_wait
from threefs.checksums import crc32c
from threefs.env.disk import File, RealDisk, Write
from threefs.env.net import RealNet
from threefs.errors import DiskFailed, NoSpace, Unavailable, error_of
from threefs.ids import ChainId, ChunkId, NodeId, TableId, TargetId
from threefs.routing import Chain, ChainMember, Node, NodeKind, PublicState, Routing
from threefs.routing import Target as RoutingTarget
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import QUERY_VERSION, READ, STAGE_AHEAD, WRITE, Method, Rep, Req
from threefs.rpc.server import Server
from threefs.wire import common_pb2
from threefs.wire import storage_pb2 as pb

SERVING, SYNCING, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.OFFLINE
WAITING, LASTSRV = PublicState.WAITING, PublicState.LASTSRV
CHAIN = ChainId(1)
CHUNK = ChunkId(7, 0)
CLIENT = bytes(range(16))
CHUNK_BYTES = 1 << 20

#: Told what is about to be sent, or has been answered; may wait and may raise.
Hook = Callable[[Method[Any, Any], Any], Awaitable[None]]


def target_of(node: int) -> TargetId:
    return TargetId(node * 100 + 1)


class HeldDisk(RealDisk):
    """A real disk whose work the test can hold back, and that can forget what it has in memory."""

    def __init__(self) -> None:
        super().__init__(threads=2)
        self.cold = False  # nothing is in memory
        self.hold_sync: Gate | None = None
        self.hold_read: Gate | None = None
        self.bad: set[tuple[str, int]] = set()  # name of a file, and where in it nothing can be read
        self.refuses = False  # it takes no more than it has, whatever room it says that it has

    async def open(self, path: Path) -> Any:
        return HeldFile(path.name, await super().open(path), self)


class HeldFile:
    def __init__(self, name: str, file: File, disk: HeldDisk) -> None:
        self._name = name
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_now(self, offset: int, into: memoryview) -> int:
        return 0 if self._disk.cold or self._is_bad(offset, into) else self._file.read_now(offset, into)

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        if self._disk.hold_read is not None:
            await self._disk.hold_read.passed()
        if self._is_bad(offset, into):
            raise DiskFailed("input/output error")
        return await self._file.read(offset, into, direct=direct)

    async def allocate(self, offset: int, length: int) -> None:
        if self._disk.refuses:
            raise NoSpace("the quota is used up")
        await self._file.allocate(offset, length)

    def _is_bad(self, offset: int, into: memoryview) -> bool:
        return any(name == self._name and offset <= at < offset + len(into) for name, at in self._disk.bad)

    def sync_now(self, writes: Sequence[Write]) -> bool:
        return False

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        if self._disk.hold_sync is not None:
            await self._disk.hold_sync.passed()
        await self._file.sync(writes)


class FakeCluster:
    """The routing that one process knows."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self.refreshes = 0
        self.upcoming: Routing | None = None  # what a refresh finds
        self._callbacks: list[Callable[[Routing], None]] = []

    async def refresh(self, newer_than: int, timeout_s: float) -> Routing:
        self.refreshes += 1
        if self.upcoming is not None:
            self.learn(self.upcoming)
            self.upcoming = None
        return self.routing

    def on_change(self, callback: Callable[[Routing], None]) -> None:
        self._callbacks.append(callback)

    def learn(self, routing: Routing) -> None:
        self.routing = routing
        for callback in self._callbacks:
            callback(routing)


class HookedPeers(ConnectionPool):
    """Real calls, with hooks before the request leaves and after its answer came. `sent` is what left."""

    sends_ahead = True  # changes go ahead of their forward
    before: Hook | None = None
    after: Hook | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sent: list[tuple[str, Message]] = []

    async def call(self, address: str, method: Method[Req, Rep], request: Req, **more: Any) -> Rep:
        if self.before is not None:
            await self.before(method, request)
        self.sent.append((method.name, request))
        reply = await super().call(address, method, request, **more)
        if self.after is not None:
            await self.after(method, request)
        return reply

    def begin_optional(self, address: str, method: Any, request: Any, **more: Any) -> Any:
        """Nothing goes past the hooks."""
        if not self.sends_ahead or self.before is not None or self.after is not None:
            return None
        begun = super().begin_optional(address, method, request, **more)
        if begun is not None:
            self.sent.append((method.name, request))
        return begun

    def writes(self) -> list[pb.ChunkWrite]:
        """The changes that left, with the forward or ahead of it."""
        found: list[pb.ChunkWrite] = []
        for _, request in self.sent:
            if isinstance(request, pb.WriteRequest | pb.StageAheadRequest):
                found += request.writes
        return found

    def count(self, method: Method[Any, Any]) -> int:
        return sum(name == method.name for name, _ in self.sent)


class Replica:
    """One storage process of the chain."""

    def __init__(self, node: int, directory: Path, overlay: OverlayLimits) -> None:
        self.node = node
        self.settings = EngineSettings(overlay=overlay)
        self.target_id = target_of(node)
        self.directory = directory
        self.address = ""
        self.disk = HeldDisk()
        self.running = False
        self.yields = False  # whether its background work yields to clients

    async def bind(self) -> None:
        """Listen, so that the address is known to all. It is that of before, which nobody else may get meanwhile."""
        self.server = Server(RealNet(), identity("c" * 32))
        port = int(self.address.rpartition(":")[2] or free_port())
        self.address = await self.server.start("127.0.0.1", port)
        self.peers = HookedPeers(RealNet(), identity("c" * 32))

    async def begin(self, routing: Routing) -> None:
        self.cluster = FakeCluster(routing)
        self.targets = Targets(NodeId(self.node), self.directory, self.disk, self.settings)
        await self.targets.open(routing)
        self.target: Target = self.targets.by_id[self.target_id]
        self.target.leased_until = math.inf
        self.storage = Storage(
            self.targets,
            self.cluster,  # type: ignore[arg-type]
            self.peers,
            self.server.pool,
            foreground=partial(foreground_of, self.server.traffic) if self.yields else no_foreground,
        )
        self.storage.start(self.server)
        self.running = True

    async def stop(self) -> None:
        """What it was doing is cut off where it is."""
        if not self.running:
            return
        self.running = False
        await self.server.stop(0.0)
        await self.storage.stop()
        await self.peers.close()
        await self.targets.close()

    async def restart(self, routing: Routing | None = None) -> None:
        routing = routing or self.cluster.routing
        await self.stop()
        await self.bind()
        await self.begin(routing)

    def record(self, chunk: ChunkId = CHUNK) -> Record:
        return self.target.engine.record(chunk) or Record()

    def state(self, chunk: ChunkId = CHUNK) -> Record:
        """What replicas have in common: all but the place on the disk."""
        record = self.record(chunk)
        committed, pending = (
            v and dataclasses.replace(v, block=None, overlay=None) for v in (record.committed, record.pending)
        )
        return dataclasses.replace(record, committed=committed, pending=pending)

    def spoil_block(self, chunk: ChunkId = CHUNK) -> None:
        """From now on the disk cannot read the first sector of the chunk."""
        committed = self.record(chunk).committed
        assert committed is not None and committed.block is not None
        self.disk.cold = True
        name = self.target.engine._files.file(committed.block)._name  # type: ignore[attr-defined]
        self.disk.bad = {(name, committed.block.slot << committed.block.bits)}

    def committed(self, chunk: ChunkId = CHUNK) -> int:
        record = self.record(chunk)
        return record.committed.version if record.committed else 0

    def pending(self, chunk: ChunkId = CHUNK) -> int:
        record = self.record(chunk)
        return record.pending.version if record.pending else 0


class TestChain:
    """Replicas 1 to n, in this order from head to tail at the start; and a client."""

    __test__ = False

    def __init__(self, directory: Path, replicas: int, overlay: OverlayLimits = NO_OVERLAYS) -> None:
        self.replicas = [Replica(n, directory / f"node-{n}", overlay) for n in range(1, replicas + 1)]
        self.peers = ConnectionPool(RealNet(), identity("c" * 32))
        self.members: list[tuple[int, PublicState]] = [(r.node, SERVING) for r in self.replicas]
        self.version = 1
        self.min_replicas = 1
        self.seq = 0

    def __getitem__(self, node: int) -> Replica:
        return self.replicas[node - 1]

    async def start(self) -> None:
        for replica in self.replicas:
            await replica.bind()
        for replica in self.replicas:
            await replica.begin(self.routing())

    async def stop(self) -> None:
        await self.peers.close()
        for replica in self.replicas:
            await replica.stop()
            await replica.disk.close()

    def routing(self) -> Routing:
        members = tuple(ChainMember(target_of(node), state) for node, state in self.members)
        return Routing(
            version=self.version,
            cluster_id="c" * 32,
            nodes={NodeId(r.node): Node(NodeId(r.node), NodeKind.STORAGE, "", r.address, 1) for r in self.replicas},
            targets={r.target_id: RoutingTarget(r.target_id, NodeId(r.node), CHAIN) for r in self.replicas},
            chains={CHAIN: Chain(CHAIN, self.version, members)},
            tables={TableId(1): (CHAIN,)},
            min_replicas={TableId(1): self.min_replicas},
        )

    def change(self, *members: tuple[int, PublicState], learned_by: Sequence[int] | None = None) -> Routing:
        """A new chain version, at once known to those nodes (None: all that run)."""
        self.version += 1
        self.members = list(members)
        routing = self.routing()
        for replica in self.replicas:
            if replica.running and (learned_by is None or replica.node in learned_by):
                replica.cluster.learn(routing)
        return routing

    # ---- the client's side

    def row(
        self,
        content: bytes = b"",
        offset: int = 0,
        *,
        node: int | None = None,
        seq: int | None = None,
        client: bytes = CLIENT,
        chunk: ChunkId = CHUNK,
        kind: int = pb.WRITE,
        **more: Any,
    ) -> pb.ChunkWrite:
        if seq is None:
            self.seq += 1
            seq = self.seq
        fields: dict[str, Any] = {
            "target": target_of(node or self.members[0][0]),
            "chain_version": self.version,
            "chunk": common_pb2.ChunkId(inode=chunk.inode, index=chunk.number),
            "identity": common_pb2.WriteIdentity(client=client, channel=1, seq=seq),
            "kind": kind,
            "offset": offset,
            "length": len(content),
            "checksum": crc32c(content),
            "chunk_bytes": CHUNK_BYTES,
        }
        return pb.ChunkWrite(**(fields | more))

    async def send(self, row: pb.ChunkWrite, content: bytes = b"", *, timeout_s: float = 20.0) -> pb.ChunkWriteResult:
        """Raises what the row failed with."""
        reply = await self.peers.call(
            self[row.target // 100].address,
            WRITE,
            pb.WriteRequest(writes=[row]),
            timeout_s=timeout_s,
            payload=[content] if content else [],
        )
        result = reply.results[0]
        if result.code:
            raise error_of(result.code, result.message)
        return result

    async def write(
        self, content: bytes, offset: int = 0, *, timeout_s: float = 20.0, **more: Any
    ) -> pb.ChunkWriteResult:
        return await self.send(self.row(content, offset, **more), content, timeout_s=timeout_s)

    def ahead_row(self, node: int, content: bytes, version: int, **more: Any) -> pb.ChunkWrite:
        """A change as the predecessor of `node` sends it, ahead or with the forward."""
        return self.row(content, node=node, version=version, stamp=self[1].target.logical_time.now, **more)

    async def send_ahead(self, row: pb.ChunkWrite, content: bytes) -> None:
        """Ends when the change is staged and was sent on."""
        request = pb.StageAheadRequest(writes=[row])
        address = self[row.target // 100].address
        await self.peers.call(address, STAGE_AHEAD, request, timeout_s=20, payload=[content] if content else [])

    async def give_up(self, node: int, row: pb.ChunkWrite, content: bytes) -> None:
        """Leave a change pending at `node`, from where it gets no further; given up only when the disk has it."""
        replica = self[node]
        replica.peers.before = refuse
        chunk = ChunkId(row.chunk.inode, row.chunk.index)
        write = asyncio.create_task(self.send(row, content))
        await until(lambda: replica.pending(chunk) > 0)
        await cancelled(write)
        await until(lambda: not len(replica.target.locks))

    async def read_rows(
        self, node: int, rows: Sequence[tuple[ChunkId, int, int]], *, timeout_s: float = 20.0, **more: Any
    ) -> tuple[pb.ReadReply, bytes]:
        fields: dict[str, Any] = {
            "target": [target_of(node)] * len(rows),
            "chain_version": [self.version] * len(rows),
            "inode": [chunk.inode for chunk, _, _ in rows],
            "index": [chunk.number for chunk, _, _ in rows],
            "offset": [offset for _, offset, _ in rows],
            "length": [length for _, _, length in rows],
        }
        got = bytearray()

        def sink(_: pb.ReadReply, length: int) -> list[memoryview]:
            got.extend(bytes(length))
            return [memoryview(got)]

        reply = await self.peers.call(
            self[node].address, READ, pb.ReadRequest(**(fields | more)), timeout_s=timeout_s, sink=sink
        )
        return reply, bytes(got)

    async def read(
        self, node: int, chunk: ChunkId = CHUNK, offset: int = 0, length: int = CHUNK_BYTES, **more: Any
    ) -> tuple[int, bytes]:
        """(version, content) as that replica says. Raises what the row failed with."""
        reply, content = await self.read_rows(node, [(chunk, offset, length)], **more)
        if reply.code[0]:
            raise error_of(reply.code[0])
        assert reply.length[0] == len(content) and reply.checksum[0] == crc32c(content)
        return reply.version[0], content

    async def query(self, node: int, chunk: ChunkId = CHUNK, *, chain_version: int | None = None) -> int:
        """What a replica asks the tail."""
        request = pb.QueryVersionRequest(
            target=target_of(node),
            chain_version=self.version if chain_version is None else chain_version,
            inode=[chunk.inode],
            index=[chunk.number],
        )
        reply = await self.peers.call(self[node].address, QUERY_VERSION, request, timeout_s=20)
        return int(reply.version[0])

    async def idle(self) -> None:
        """All buffers have come back, all locks are free."""
        for replica in self.replicas:
            if replica.running:
                await until(lambda: replica.server.pool.lent == 0 and not len(replica.target.locks))  # noqa: B023


@asynccontextmanager
async def chain_of(
    directory: Path, replicas: int = 3, overlay: OverlayLimits = NO_OVERLAYS
) -> AsyncIterator[TestChain]:
    chain = TestChain(directory, replicas, overlay)
    try:
        await chain.start()
        yield chain
        await chain.idle()
    finally:
        await chain.stop()


class Gate:
    """A hook that holds calls of one method back. `reached` is set when the first has come."""

    def __init__(self, method: Method[Any, Any] = WRITE) -> None:
        self.method = method
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, method: Method[Any, Any], request: Any) -> None:
        if method is self.method:
            await self.passed()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()


async def until(condition: Callable[[], bool]) -> None:
    """The test's own time limit ends this."""
    while not condition():
        await asyncio.sleep(0.002)


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Give up a call, which may have failed already."""
    await cancel_and_wait(task)


async def refuse(method: Method[object, object], request: object) -> None:  # type: ignore[type-var]
    raise Unavailable("cut off")


def flip_record(replica: Replica, *, is_cached: bool = False, bits: int = 1) -> None:
    store = replica.target.engine._store
    data = store._table.get(CHUNK.key())
    assert data is not None
    store._table.write({CHUNK.key(): data[:20] + bytes([data[20] ^ bits]) + data[21:]})
    if not is_cached:
        store._young.clear()
        store._old.clear()
