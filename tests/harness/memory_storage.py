"""Storage processes that live in the test's own memory: one call surface, real requests, faults on demand."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from google.protobuf.message import Message

from threefs.checksums import crc32c
from threefs.errors import (
    ChainChanged,
    ChunkChanged,
    ChunkNotFound,
    DeadlineExceeded,
    NotServing,
    StaleFence,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
)
from threefs.ids import ChainId, ChunkId, NodeId, TableId, TargetId
from threefs.layout import FENCE_CHUNK
from threefs.routing import Chain, ChainMember, Node, NodeKind, PublicState, Routing, Target
from threefs.rpc.handshake import FEATURES
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import storage_pb2 as pb


def make_routing(version: int = 1, chains: int = 2, replicas: int = 3, chain_version: int = 1) -> Routing:
    """Chains whose n-th target lies on node n: heads and tails are the same two processes for all of them."""
    nodes = {
        NodeId(n): Node(NodeId(n), NodeKind.STORAGE, f"host{n}", f"storage-{n}:1", 7) for n in range(1, replicas + 1)
    }
    targets: dict[TargetId, Target] = {}
    tables: dict[ChainId, Chain] = {}
    for c in range(1, chains + 1):
        members = []
        for n in range(1, replicas + 1):
            target = TargetId(n * 100 + c)
            targets[target] = Target(target, NodeId(n), ChainId(c))
            members.append(ChainMember(target, PublicState.SERVING))
        turned = members[(c - 1) % replicas :] + members[: (c - 1) % replicas]
        tables[ChainId(c)] = Chain(ChainId(c), chain_version, tuple(turned))
    return Routing(version, "c" * 32, nodes, targets, tables, {TableId(1): tuple(tables)})


def without_head(routing: Routing, number: ChainId) -> tuple[TargetId, Routing]:
    """The head of a chain, and the routing after it was put out."""
    chain = routing.chains[number]
    left = replace(chain, version=chain.version + 1, members=chain.members[1:])
    assert chain.head is not None
    return chain.head, replace(routing, version=routing.version + 1, chains={**routing.chains, number: left})


class MemoryCluster:
    """A routing source whose routing the test changes."""

    def __init__(self, routing: Routing | None = None) -> None:
        self.routing = routing or make_routing()
        self.upcoming: list[Routing] = []  # what a refresh finds
        self.refreshes = 0
        self._callbacks: list[Callable[[Routing], None]] = []

    async def refresh(self, newer_than: int, timeout_s: float) -> Routing:
        self.refreshes += 1
        if self.upcoming and newer_than >= self.routing.version:
            self.learn(self.upcoming.pop(0))
        return self.routing

    def on_change(self, callback: Callable[[Routing], None]) -> None:
        self._callbacks.append(callback)

    def learn(self, routing: Routing) -> None:
        self.routing = routing
        for callback in self._callbacks:
            callback(routing)


_FRAMES = 100  # of an answer on a slow link
_REMOVED = 3  # as the health of a tombstone

#: Called before a request is served; may raise. Return True to serve it and lose the answer.
Fault = Callable[[str, Method[Any, Any], Message], ThreefsError | None]


class MemoryStorage:
    """Answers the storage calls of all addresses. All replicas share one copy of the data."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.data: dict[ChunkId, bytearray] = {}
        self.versions: dict[ChunkId, int] = {}
        self.fences: dict[tuple[ChainId, int], int] = {}  # by chain and inode
        self.seen: dict[tuple[ChunkId, bytes, int], int] = {}
        self.calls: list[tuple[str, str, Message]] = []
        self.before: list[Fault] = []  # each is used up by one call: an error instead of serving
        self.after: list[Fault] = []  # ... or an error after serving
        self.down: set[str] = set()
        self.silent: set[str] = set()  # addresses that never answer
        self.short: set[ChainId] = set()  # chains with fewer replicas than a write needs
        self.lacking: set[tuple[int, ChunkId]] = set()  # targets that say they have no such chunk
        self.health: dict[tuple[int, ChunkId], int] = {}  # of copies that are damaged (1) or lost (2)
        self.pending: set[tuple[int, ChunkId]] = set()  # ... or that something is on its way
        self.chain_of: dict[ChunkId, ChainId] = {}
        self.applied = 0
        self.pause_s: Callable[[], float] | None = None  # how long a request and its answer travel
        self.bytes_per_s = math.inf  # what the link of each call passes
        self.frames = 0  # of answers, that have passed slow links
        self.receive: Callable[[], None] = lambda: None  # called by a client that looks for frames it has not read
        self.stalled: set[str] = set()  # addresses whose answers end in the middle, on slow links
        self.features = FEATURES

    async def call(
        self,
        address: str,
        method: Method[Req, Rep],
        request: Req,
        *,
        timeout_s: float,
        payload: Sequence[Any] = (),
        sink: Callable[[Message, int], Sequence[memoryview]] | None = None,
        request_id: int = 0,
    ) -> Rep:
        assert timeout_s > 0
        self.calls.append((address, method.name, request))
        data = b"".join(bytes(part) for part in payload)
        if self.pause_s is not None:
            await asyncio.sleep(self.pause_s())
        if address in self.down:
            raise Unavailable(f"{address} is down")
        if address in self.silent:
            await asyncio.sleep(timeout_s)
            raise DeadlineExceeded(f"{address} is silent")
        if self.before and (error := self.before.pop(0)(address, method, request)):
            raise error
        await self._pass_link(data, timeout_s)
        reply, out = self._serve(method, request, data)
        if self.pause_s is not None:
            await asyncio.sleep(self.pause_s())
        if self.after and (error := self.after.pop(0)(address, method, request)):
            raise error
        if out:
            assert sink is not None, "payload without a sink"
            views = sink(reply, len(out))
            await self._pass_frames(address, out, timeout_s)
            _pour(out, views)
        return cast(Rep, reply)

    async def _pass_frames(self, address: str, data: bytes, timeout_s: float) -> None:
        if self.bytes_per_s == math.inf:
            return
        try:
            async with asyncio.timeout(timeout_s):
                for passed in range(_FRAMES):
                    if address in self.stalled and passed == _FRAMES // 2:
                        await asyncio.Event().wait()
                    await asyncio.sleep(len(data) / _FRAMES / self.bytes_per_s)
                    self.frames += 1
        except TimeoutError:
            raise DeadlineExceeded("the bytes are still on their way") from None

    async def _pass_link(self, data: bytes, timeout_s: float) -> None:
        await asyncio.sleep(min(len(data) / self.bytes_per_s, timeout_s))
        if len(data) / self.bytes_per_s > timeout_s:
            raise DeadlineExceeded("the bytes are still on their way")

    def has_feature(self, address: str, feature: int) -> bool:
        return address not in self.down and bool(self.features & feature)

    def _serve(self, method: Method[Any, Any], request: Any, payload: bytes) -> tuple[Message, bytes]:
        match method.name:
            case "Write":
                return self._write(request, payload), b""
            case "Read":
                return self._read(request)
            case "LastChunk":
                self._check(request.target, request.chain_version, tail=True)
                mine = self._chunks(request.target, request.inode)
                reply = pb.LastChunkReply()
                if mine:
                    reply = pb.LastChunkReply(found=True, index=mine[-1], length=len(self._at(request.inode, mine[-1])))
                return reply, b""
            case "ListChunks":
                self._check(request.target, request.chain_version, tail=True)
                mine = [n for n in self._chunks(request.target, request.inode) if n >= request.first_index]
                page = mine[: min(request.limit, 3)]  # small pages, so that tests see more than one
                lengths = [len(self._at(request.inode, n)) for n in page]
                versions = [self.versions[ChunkId(request.inode, n)] for n in page]
                more = len(mine) > len(page)
                checksums = [crc32c(bytes(self._at(request.inode, n))) for n in page]
                columns = {"index": page, "length": lengths, "version": versions, "checksum": checksums}
                return pb.ListChunksReply(**columns, more=more), b""
            case "ScanChunks":
                return self._scan(request), b""
        raise AssertionError(method.name)

    def _scan(self, request: pb.ScanChunksRequest) -> pb.ScanChunksReply:
        if request.any_state:
            chain = self.cluster.routing.targets[TargetId(request.target)].chain_id
        else:
            chain = self._check(request.target, request.chain_version)
        behind = ChunkId(request.inode, request.index) if request.behind else ChunkId(-1, 0)
        known = self.chain_of if request.removed else self.data
        mine = sorted(chunk for chunk in known if self.chain_of[chunk] == chain and chunk > behind)
        limit = min(request.limit, 3)
        reply = pb.ScanChunksReply(more=len(mine) > limit)
        for chunk in mine[:limit]:
            reply.last_inode, reply.last_index = chunk
            if (request.target, chunk) in self.lacking:
                continue
            reply.inode.append(chunk.inode)
            reply.index.append(chunk.number)
            reply.version.append(self.versions[chunk])
            content = bytes(self.data.get(chunk, b""))
            reply.length.append(len(content))
            reply.checksum.append(crc32c(content))
            reply.health.append(self.health.get((request.target, chunk), 0) if chunk in self.data else _REMOVED)
            reply.pending.append((request.target, chunk) in self.pending)
        return reply

    def _at(self, inode: int, number: int) -> bytearray:
        return self.data[ChunkId(inode, number)]

    def _chunks(self, target: int, inode: int) -> list[int]:
        chain = self.cluster.routing.targets[TargetId(target)].chain_id
        return sorted(c.number for c in self.data if c.inode == inode and self.chain_of.get(c) == chain)

    def _check(self, target: int, chain_version: int, *, tail: bool = False, head: bool = False) -> ChainId:
        routing = self.cluster.routing
        chain = routing.chains[routing.targets[TargetId(target)].chain_id]
        if chain.version != chain_version:
            raise ChainChanged(f"chain {chain.chain_id} has version {chain.version}")
        if target not in chain.serving or (tail and target != chain.tail) or (head and target != chain.head):
            raise NotServing(f"target {target}")
        return chain.chain_id

    def _write(self, request: pb.WriteRequest, payload: bytes) -> pb.WriteReply:
        reply = pb.WriteReply(routing_version=self.cluster.routing.version)
        at = 0
        for write in request.writes:
            size = write.length if write.kind in (pb.WRITE, pb.WRITE_PIECES) else 0
            part, at = payload[at : at + size], at + size
            try:
                chain = self._check(write.target, write.chain_version, head=True)
                if chain in self.short and not (write.freed and write.kind == pb.REMOVE):
                    raise TooFewReplicas(f"chain {chain}")
                reply.results.append(self._apply(write, chain, part))
            except ThreefsError as error:
                reply.results.add(code=error.code, message=error.message)
        assert at == len(payload)
        return reply

    def _apply(self, write: pb.ChunkWrite, chain: ChainId, part: bytes) -> pb.ChunkWriteResult:
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        entry = (chunk, write.identity.client, write.identity.channel)
        assert crc32c(part) == write.checksum or not part
        if chunk.number == FENCE_CHUNK:
            return self._fence(chain, chunk.inode, write)
        if write.fence and write.fence <= self.fences.get((chain, chunk.inode), 0):
            raise StaleFence(f"fence {write.fence} of inode {chunk.inode} is old")
        assert write.identity.seq >= self.seen.get(entry, 0), "sequence numbers of a channel never go back"
        if self.seen.get(entry) != write.identity.seq:
            if write.only_version and write.only_version != self.versions.get(chunk, 0):
                raise ChunkChanged(f"chunk {chunk} has version {self.versions.get(chunk, 0)}")
            self.seen[entry] = write.identity.seq
            self.versions[chunk] = self.versions.get(chunk, 0) + 1
            self.chain_of[chunk] = chain
            self.applied += 1
            self._change(chunk, write, part)
        return pb.ChunkWriteResult(version=self.versions[chunk], length=len(self.data.get(chunk, b"")))

    def _fence(self, chain: ChainId, inode: int, write: pb.ChunkWrite) -> pb.ChunkWriteResult:
        if write.kind == pb.REMOVE:
            self.fences.pop((chain, inode), None)
            return pb.ChunkWriteResult(version=1)
        assert write.kind == pb.EXTEND
        fence = self.fences[chain, inode] = max(write.length, self.fences.get((chain, inode), 0))
        return pb.ChunkWriteResult(version=1, length=fence)

    def _change(self, chunk: ChunkId, write: pb.ChunkWrite, part: bytes) -> None:
        if write.kind == pb.REMOVE:
            self.data.pop(chunk, None)
            return
        if write.kind == pb.WRITE_PIECES:
            numbers = iter(write.pieces)
            for offset, length in zip(numbers, numbers, strict=True):
                piece, part = part[:length], part[length:]
                self._change(
                    chunk,
                    pb.ChunkWrite(kind=pb.WRITE, offset=offset, length=length, chunk_bytes=write.chunk_bytes),
                    piece,
                )
            return
        data = self.data.setdefault(chunk, bytearray())
        wanted = write.length + (write.offset if write.kind == pb.WRITE else 0)
        assert wanted <= write.chunk_bytes
        if len(data) < wanted:
            data.extend(bytes(wanted - len(data)))
        if write.kind == pb.WRITE:
            data[write.offset : wanted] = part
        elif write.kind == pb.TRUNCATE:
            del data[wanted:]

    def _read(self, request: pb.ReadRequest) -> tuple[pb.ReadReply, bytes]:
        reply = pb.ReadReply(routing_version=self.cluster.routing.version)
        out = []
        for row in _rows(request):
            target, chain_version, inode, number, offset, length = row
            part, code, version = b"", 0, 0
            try:
                self._check(target, chain_version)
                chunk = ChunkId(inode, number)
                if chunk not in self.data:
                    raise ChunkNotFound
                part, version = bytes(self.data[chunk][offset : offset + length]), self.versions[chunk]
            except ThreefsError as error:
                code = error.code
            reply.code.append(code)
            reply.length.append(len(part))
            reply.checksum.append(crc32c(part) if part else 0)
            reply.version.append(version)
            out.append(part)
        return reply, b"".join(out)


def _rows(request: pb.ReadRequest) -> Iterable[tuple[int, ...]]:
    columns = (request.target, request.chain_version, request.inode, request.index, request.offset, request.length)
    return zip(*columns, strict=True)


def _pour(data: bytes, views: Sequence[memoryview]) -> None:
    assert sum(view.nbytes for view in views) == len(data), "a sink must take exactly the payload"
    at = 0
    for view in views:
        view[:] = data[at : at + len(view)]
        at += len(view)
