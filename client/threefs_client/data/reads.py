"""Reads of chunks: plan, send, settle. A failed row is read from another replica. A chunk that does not exist reads as
zeros."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from threefs import layout as layouts
from threefs.access_time import due_ns
from threefs.backoff import Backoff
from threefs.byte_budget import ByteBudget
from threefs.cluster import routing_watcher
from threefs.cluster.routing_watcher import RoutingSource
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Corrupt, CorruptChunk, DeadlineExceeded, InvalidArgument, NotServing, Retry, ThreefsError
from threefs.ids import TargetId
from threefs.layout import FileLayout, spans
from threefs.routing import Routing
from threefs.rpc import methods
from threefs.rpc.client_connection import Ready
from threefs.rpc.frames import UNGRANTED_BYTES
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.wait_log import chunk_waits
from threefs.transfer_time import transfer_s
from threefs.wire import meta_pb2
from threefs.wire import storage_pb2 as pb
from threefs_client.byte_view import byte_view
from threefs_client.data import read_plans
from threefs_client.data.grants import Grants
from threefs_client.data.read_plans import Hole, Piece, ReadPlan, Row
from threefs_client.data.replica_selector import ReplicaSelector, Resolved
from threefs_client.options import Options

_MAX_REQUEST_ROWS = 512  # so that the views of an answer fit into one system call
_LOG = LibraryLogger(__name__)
_BACKOFF = Backoff(0.01, 0.5)


class Connection(Protocol):
    is_local: bool

    @property
    def frames(self) -> int: ...  # received

    def receive(self) -> None: ...

    def call(
        self, method: Any, request: Any, *, timeout_s: float, sink: Any = None, ready: Any = None
    ) -> asyncio.Future[Any]: ...


class Peers(Protocol):
    """The part of threefs.rpc.connection_pool.ConnectionPool that is needed here."""

    def live(self, address: str) -> Connection | None: ...

    async def connect(self, address: str, timeout_s: float) -> Connection: ...


class ReadFile:
    """The state of a file that a read needs. `length` is the length as far as this client knows, in bytes."""

    __slots__ = (
        "_lease",
        "_resolved",
        "_routing",
        "atime_due_ns",
        "change",
        "inode",
        "layout",
        "length",
        "newest",
        "truncate_version",
        "written_end",
    )

    def __init__(
        self, inode: int, layout: FileLayout, length: int, truncate_version: int, atime_due_ns: int = 0
    ) -> None:
        self.inode = inode
        self.layout = layout
        self.length = length
        self.truncate_version = truncate_version
        self.atime_due_ns = atime_due_ns  # from this time on a read changes the access time
        self.change = 0  # the change counter, as last received
        self.written_end = 0  # end of this client's acknowledged writes since the last truncate
        self.newest: meta_pb2.Inode | None = None  # the newest answer of the meta service; not to be changed
        self._lease = 0  # number of the lease of this client when it came
        self._routing: Routing | None = None
        self._resolved: Resolved | None = None

    def resolve(self, selector: ReplicaSelector) -> Resolved:
        if self._routing is not selector.routing or self._resolved is None:
            self._resolved = selector.resolve(self.inode, self.layout)
            self._routing = selector.routing
        return self._resolved

    def is_late(self, inode: meta_pb2.Inode, lease: int) -> bool:
        """Whether a newer answer than this one is known: answers overtake each other, and the change counter of an
        inode never falls (I17). `lease` is the number of this client's lease.

        A restore of the metadata from a backup may take the counter back. It raises the number of the lease as well.
        """
        return 0 < inode.change < self.change and lease == self._lease

    def apply_inode(self, inode: meta_pb2.Inode, lease: int) -> None:
        """Take over the inode, unless the answer is late. This client's own writes may reach beyond its length until
        they are synced."""
        if self.is_late(inode, lease):
            return
        if inode.truncate_version != self.truncate_version:
            self.truncate_version = inode.truncate_version
            self.written_end = 0
        self.length = max(inode.length, self.written_end)
        self.change = inode.change
        self.atime_due_ns = due_ns(inode)
        self.newest, self._lease = inode, lease

    def apply_known(self, other: "ReadFile") -> None:
        """Take over what another open file of the same inode knows, unless it may be from before a restore."""
        if other.newest is not None and other._lease == self._lease:
            self.apply_inode(other.newest, other._lease)


def of_inode(inode: meta_pb2.Inode, lease: int) -> ReadFile:
    """A file from the answer of the meta service. `lease` is the number of this client's lease."""
    file = ReadFile(inode.inode, layouts.from_wire(inode.layout), inode.length, inode.truncate_version, due_ns(inode))
    file.change, file.newest, file._lease = inode.change, inode, lease
    return file


class Reader:
    def __init__(
        self,
        peers: Peers,
        cluster: RoutingSource,
        options: Options,
        *,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        grants: Grants | None = None,
    ) -> None:
        """Without `grants`, services answer at once, however many they are."""
        self._peers = peers
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._random = random
        self._selector = ReplicaSelector(cluster.routing)
        self._budget = ByteBudget(options.in_flight_bytes)
        self._wait_log = chunk_waits(_LOG, "read")
        self._grants = grants

    def _current_selector(self) -> ReplicaSelector:
        selector = self._selector
        if selector.routing is not self._cluster.routing:
            selector = self._selector = ReplicaSelector(self._cluster.routing)
        selector.clear_penalty(self._clock.monotonic())
        return selector

    async def read_batch(
        self,
        rows: Sequence[tuple[Any, int, int]],
        files: Mapping[Any, ReadFile],
        places: Sequence[memoryview] | None,
        deadline: float,
    ) -> tuple[list[memoryview], set[int]] | None:
        """Read (file key, offset, length) rows that each lie within one chunk and the known length of their file.

        Returns the views, and the indexes of rows that are holes at least in part. None if a row is of another kind, or
        its chain has no serving target: the caller must use `read_into` then.
        """
        selector = self._current_selector()
        try:
            resolved = {key: (file.resolve(selector), file.length) for key, file in files.items()}
        except NotServing:
            return None
        plans = read_plans.plan_rows(rows, resolved, self._options.request_bytes, _MAX_REQUEST_ROWS)
        if plans is None:
            return None
        if places is not None:
            for plan in plans:
                plan.destinations = [places[row[6]] for row in plan.rows]
        results: list[Any] = [None] * len(rows)
        failed = await self._send_plans(plans, results, deadline)
        if failed:
            pieces = [_failed_piece(files[rows[row[6]][0]], row, results[row[6]], error) for row, error in failed]
            await self._read_pieces(pieces, deadline)
        return _split_holes(results, () if not failed else (row[6] for row, _ in failed))

    async def read_into(self, parts: Iterable[tuple[ReadFile, int, memoryview]], deadline: float) -> bool:
        """Fill each view from its file at an offset. Returns whether a part of them is a hole, filled with zeros."""
        pieces = []
        for file, offset, view in parts:
            at = 0
            for number, within, length in spans(file.layout.chunk_bytes, offset, len(view)):
                pieces.append(Piece(file, number, within, length, view[at : at + length]))
                at += length
        return await self._read_pieces(pieces, deadline)

    async def _read_pieces(self, pieces: list[Piece], deadline: float) -> bool:
        holes = False
        attempt, began = 0, self._clock.monotonic()
        while pieces:
            routing = self._cluster.routing
            plans, failed = read_plans.plan_pieces(
                pieces, self._current_selector(), self._options.request_bytes, _MAX_REQUEST_ROWS
            )
            results: list[Any] = [None] * len(pieces)
            for row, error in await self._send_plans(plans, results, deadline):
                pieces[row[6]].note(row[0], error)
                failed.append(pieces[row[6]])
            holes = holes or any(type(result) is Hole for result in results)
            first_error = failed[0].error if failed else None
            self._wait_log.attempted(first_error, began, self._clock.monotonic(), deadline)
            if failed and self._needs_pause(failed, deadline):
                await self._pause(routing.version, attempt, deadline)
                attempt += 1
            pieces = failed
        return holes

    async def _send_plans(
        self, plans: list[ReadPlan], results: list[Any], deadline: float
    ) -> list[tuple[Row, ThreefsError]]:
        """Send all plans at once, and settle each answer. Returns the rows that failed."""
        failed: list[tuple[Row, ThreefsError]] = []
        calls: list[asyncio.Future[Any]] = []
        try:
            for plan in plans:
                if not self._budget.try_take(plan.size):
                    await self._budget.take(plan.size)
                calls.append(self._send(plan, deadline))
            for plan, call in zip(plans, calls, strict=True):
                try:
                    reply: pb.ReadReply = await call
                    failed += read_plans.settle(plan, reply, results, self._options.verify)
                except ThreefsError as error:
                    if error.retry in (Retry.SAFE, Retry.UNKNOWN):
                        self._selector.penalize(plan.endpoint, self._clock.monotonic())
                    plan.buffer = None  # a late answer may still fill the old one
                    for row, place in zip(plan.rows, plan.places(), strict=True):
                        results[row[6]] = place
                        failed.append((row, error))
        finally:
            for plan, call in zip(plans, calls, strict=False):
                call.cancel()
                if plan.call is not None:  # in this step, too: the caller may use its memory again
                    plan.call.cancel()
            for plan in plans[len(calls) :]:  # never sent
                plan.endpoint.load -= plan.size
        return failed

    def _send(self, plan: ReadPlan, deadline: float) -> asyncio.Future[Any]:
        attempt_s = max(self._options.attempt_timeout_s, transfer_s(plan.size))
        timeout_s = max(0.001, min(attempt_s, deadline - self._clock.monotonic()))
        connection = self._peers.live(plan.endpoint.address)
        call: asyncio.Future[Any]
        ready = None
        is_local = connection is not None and connection.is_local  # then no network is in between
        if self._grants is not None and plan.size > UNGRANTED_BYTES and not is_local:
            plan.clock = self._clock
            plan.announced = self._grants.begin(plan.endpoint.address, plan.size)
            if plan.announced is not None:
                ready = plan.announced.ready
        if connection is None:
            call = asyncio.ensure_future(self._connect_and_send(plan, timeout_s, ready))
        elif timeout_s > self._options.attempt_timeout_s:
            call = asyncio.ensure_future(self._call_watched(connection, plan, timeout_s, ready))
        else:
            call = connection.call(methods.READ, plan.request(), timeout_s=timeout_s, sink=plan.sink, ready=ready)
        call.add_done_callback(partial(self._release, plan))
        return call

    async def _connect_and_send(self, plan: ReadPlan, timeout_s: float, ready: Ready | None) -> pb.ReadReply:
        connect_s = min(timeout_s, self._options.attempt_timeout_s)
        connection = await self._peers.connect(plan.endpoint.address, connect_s)
        return await self._call_watched(connection, plan, timeout_s, ready)

    async def _call_watched(
        self, connection: Connection, plan: ReadPlan, timeout_s: float, ready: Ready | None
    ) -> pb.ReadReply:
        """A large answer may take longer than `attempt_timeout_s`, as long as it comes: another replica is asked
        instead of one that is silent for so long, and the next time for twice as long. Where all were silent, the
        last one is waited for: a service reads all rows before it answers, and where the disks of all are busy, each
        repeat gives them more to do."""
        call = plan.call = connection.call(
            methods.READ, plan.request(), timeout_s=timeout_s, sink=plan.sink, ready=ready
        )
        silence_s = self._options.attempt_timeout_s * plan.patience
        progress = plan.progress(connection.frames)
        try:
            while timeout_s > silence_s and not (await asyncio.wait([call], timeout=silence_s))[0]:
                self._receive(connection)
                before, progress = progress, plan.progress(connection.frames)
                is_silent = progress == before and not call.done() and not plan.awaits_grant
                if is_silent and plan.may_be_left(self._current_selector()):
                    raise DeadlineExceeded(f"{plan.endpoint.address} has sent nothing of a read for {silence_s:g} s")
            reply: pb.ReadReply = await call
            return reply
        finally:
            call.cancel()

    @staticmethod
    def _receive(connection: Connection) -> None:
        """Take in what came while this process was busy or stopped. An error that this raises is another call's; this
        one has the error of its connection then."""
        try:
            connection.receive()
        except Exception:
            _LOG.exception("received bytes could not be taken in")

    def _release(self, plan: ReadPlan, call: asyncio.Future[Any]) -> None:
        plan.endpoint.load -= plan.size - len(plan.rows)
        self._budget.give(plan.size)
        # `exception` counts as retrieved: the caller may have been cancelled.
        came = not call.cancelled() and call.exception() is None
        grants = self._grants
        if grants is not None and plan.clock is not None:
            if came and plan.began:
                grants.received(plan.size, plan.began)
            if plan.announced is None:
                grants.end(plan.endpoint.address, plan.size)
            else:
                plan.announced.end()

    def _needs_pause(self, failed: list[Piece], deadline: float) -> bool:
        """Whether to pause before the next attempt, because no other replica can be tried now. Raises an error that no
        attempt can mend, and after the deadline the last error."""
        pause = False
        late = self._clock.monotonic() >= deadline
        selector = self._current_selector()
        for piece in failed:
            error = piece.error
            assert error is not None, "a failed piece has an error"
            untried = _has_untried_replica(piece, selector)
            if error.retry is Retry.NEVER and not _may_be_repaired(piece, error, selector.routing):
                raise error
            if late:
                raise error
            pause = pause or not untried or error.retry is Retry.REFRESH
        return pause

    async def _pause(self, version: int, attempt: int, deadline: float) -> None:
        pause_s = min(_BACKOFF.pause_s(attempt, self._random), deadline - self._clock.monotonic())
        await routing_watcher.pause(self._cluster, version, pause_s, self._clock)


def _has_untried_replica(piece: Piece, selector: ReplicaSelector) -> bool:
    try:
        _, _, _, stripe, places = piece.file.resolve(selector)
    except NotServing:
        return False
    return any(replica[1] not in piece.tried for replica in places[piece.number % stripe])


def _may_be_repaired(piece: Piece, error: ThreefsError, routing: Routing) -> bool:
    """Whether the chunk may be good soon. A target makes a damaged record good, also alone, as after the flip of one
    bit, or says that the chunk is lost. Damaged bytes are final when all members of the chain have said so: another one
    may be out of reach, or not serve just now, and have the copy from which the others are repaired."""
    if not isinstance(error, CorruptChunk):
        return isinstance(error, Corrupt)
    known = [target for each in piece.damaged if (target := routing.targets.get(TargetId(each)))]
    chains = [routing.chains[target.chain_id] for target in known]
    return any(member.target_id not in piece.damaged for chain in chains for member in chain.members)


def _failed_piece(file: ReadFile, row: Row, place: Any, error: ThreefsError) -> Piece:
    target, _, _, number, within, length, _ = row
    piece = Piece(file, number, within, length, place)
    piece.tried.add(target)
    piece.note(target, error)
    return piece


def _split_holes(results: list[Any], reread: Iterable[int]) -> tuple[list[memoryview], set[int]]:
    holes = set(reread)  # rows that were read again may be holes
    for index, result in enumerate(results):
        if type(result) is Hole:
            results[index] = result.place
            holes.add(index)
    return results, holes


def destinations(rows: Sequence[tuple[Any, int, int]], into: Any) -> list[memoryview]:
    """The memory for each row. Raises InvalidArgument if it is too small."""
    if isinstance(into, list | tuple):
        if len(into) != len(rows):
            raise InvalidArgument(f"each row needs a buffer: there are {len(rows)} rows and {len(into)} buffers")
        views = [byte_view(part, writable=True) for part in into]
        for view, (_, _, length) in zip(views, rows, strict=True):
            if len(view) < length:
                raise InvalidArgument(f"a buffer of {len(view)} bytes is too small for a row of {length} bytes")
        return [view[: max(0, row[2])] for view, row in zip(views, rows, strict=True)]
    whole = byte_view(into, writable=True)
    places = []
    at = 0
    for _, _, length in rows:
        end = at + max(0, length)
        places.append(whole[at:end])
        at = end
    if at > len(whole):
        raise InvalidArgument(f"a buffer of {len(whole)} bytes is too small for rows of {at} bytes")
    return places
