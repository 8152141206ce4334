"""Plans of reads: which request goes to which storage process, and what its answer means. No I/O happens here.

Rows are planned once (`plan_rows`, `plan_pieces`), `reads.py` sends the plans, and `settle` takes each answer apart.
This is the hot path.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, Protocol

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from threefs.checksums import combine, crc32c
from threefs.env.clock import Clock
from threefs.errors import (
    ChecksumMismatch,
    ChunkNotFound,
    CorruptChunk,
    DeadlineExceeded,
    NotServing,
    ProtocolError,
    ThreefsError,
    error_of,
)
from threefs.layout import FileLayout
from threefs.wire import storage_pb2 as pb
from threefs_client.data.grants import Announced
from threefs_client.data.replica_selector import Replica, ReplicaEndpoint, ReplicaSelector, Resolved, choose

#: (target, chain version, inode, chunk number, offset in chunk, length, index of the row)
Row = tuple[int, int, int, int, int, int, int]

_MISSING = ChunkNotFound.code
_MAX_DOUBLINGS = 16  # of the patience with a silent replica: beyond any deadline


class ReadPlan:
    """One request to one storage process, and the memory for its answer."""

    __slots__ = (
        "announced",
        "began",
        "buffer",
        "call",
        "clock",
        "destinations",
        "endpoint",
        "has_begun",
        "pieces",
        "rows",
        "size",
    )

    def __init__(self, endpoint: ReplicaEndpoint) -> None:
        self.endpoint = endpoint
        self.rows: list[Row] = []
        self.pieces: list[Piece] = []  # of the rows; none at the first attempt
        self.size = 0  # requested bytes
        self.destinations: list[memoryview] | None = None  # None: `buffer`, with one row after the other
        self.buffer: NDArray[np.uint8] | None = None
        self.announced: Announced | None = None  # the answer waits for a grant
        self.clock: Clock | None = None  # of a large request: the begin of its answer is noted
        self.began = 0.0
        self.has_begun = False  # the answer
        self.call: asyncio.Future[pb.ReadReply] | None = None  # where a task watches over it

    def request(self) -> pb.ReadRequest:
        request = pb.ReadRequest()
        target, version, inode, number, offset, length, _ = zip(*self.rows, strict=True)
        request.target.extend(target)
        request.chain_version.extend(version)
        request.inode.extend(inode)
        request.index.extend(number)
        request.offset.extend(offset)
        request.length.extend(length)
        return request

    def sink(self, reply: Message, size: int) -> Sequence[memoryview]:
        """The memory that receives the payload of the reply."""
        assert isinstance(reply, pb.ReadReply)
        self.has_begun = True
        if self.clock is not None:
            self.began = self.clock.monotonic()
        if size == self.size:
            if self.destinations is not None:
                return self.destinations
            self.buffer = np.empty(size, np.uint8)
            return (self.buffer.data,)
        return self._short_sink(reply, size)

    def progress(self, frames: int) -> tuple[bool, int]:
        """What changes while the answer comes, on a connection that has received so many frames. Those of other answers
        say nothing of one that has not begun."""
        is_granted = self.announced is not None and self.announced.is_granted
        return is_granted, frames if self.has_begun else 0

    @property
    def awaits_grant(self) -> bool:
        """Whether the service has announced the answer, and this process does not let it come yet."""
        return self.announced is not None and self.announced.is_waiting

    def may_be_left(self, selector: ReplicaSelector) -> bool:
        """Whether a row may be read at another replica, when this one is silent."""
        pieces = self.pieces or repeat(None)
        return any(
            selector.has_other_replica(row[0], piece.silent if piece else (), piece.damaged if piece else ())
            for row, piece in zip(self.rows, pieces, strict=False)
        )

    @property
    def patience(self) -> int:
        """How many times as long as usual its replica may be silent: twice as long each time that it was left. The
        other ones may fail again and again, and it reads everything anew each time."""
        left = [piece.silent.get(row[0], 0) for row, piece in zip(self.rows, self.pieces, strict=False)]
        return 1 << min(max(left, default=0), _MAX_DOUBLINGS)

    def _short_sink(self, reply: pb.ReadReply, size: int) -> list[memoryview]:
        lengths = reply.length
        places = self.places()
        if len(lengths) != len(places) or sum(lengths) != size:
            raise ProtocolError(f"the lengths of a read reply do not fit its payload of {size} bytes")
        views = []
        for place, length in zip(places, lengths, strict=True):
            if length > len(place):
                raise ProtocolError(f"a read reply has {length} bytes for a row of {len(place)}")
            if length:
                views.append(place[:length])
        return views

    def places(self) -> list[memoryview]:
        """The destination of each row."""
        if self.destinations is not None:
            return self.destinations
        if self.buffer is None:
            self.buffer = np.empty(self.size, np.uint8)
        view = self.buffer.data
        ends = list(accumulate(row[5] for row in self.rows))
        return [view[end - row[5] : end] for row, end in zip(self.rows, ends, strict=True)]


def plan_rows(
    rows: Sequence[tuple[Any, int, int]],
    files: Mapping[Any, tuple[Resolved, int]],
    request_bytes: int,
    request_rows: int,
) -> list[ReadPlan] | None:
    """Plans for (file key, offset, length) rows that each lie within one chunk and the known length of their file.

    `files` has the resolved layout and the length in bytes of each file. None if a row is empty, crosses a chunk
    boundary, reaches beyond the known end, or lies on a chain that has no serving target: such rows must be cut into
    pieces, for `plan_pieces`.
    """
    plans: list[ReadPlan] = []
    complete = False
    try:
        complete = _fill(rows, files, request_bytes, request_rows, plans)
    finally:
        for plan in plans:
            plan.endpoint.open_plan = None
            if not complete:
                plan.endpoint.load -= plan.size
    return plans if complete else None


def _fill(
    rows: Sequence[tuple[Any, int, int]],
    files: Mapping[Any, tuple[Resolved, int]],
    request_bytes: int,
    request_rows: int,
    plans: list[ReadPlan],
) -> bool:
    for index, (key, offset, length) in enumerate(rows):
        (inode, shift, chunk_bytes, stripe, places), end = files[key]
        within = offset & (chunk_bytes - 1)
        if offset < 0 or length <= 0 or offset + length > end or within + length > chunk_bytes:
            return False
        number = offset >> shift
        replica = choose(places[number % stripe])
        if replica is None:
            return False
        endpoint, target, version = replica
        current: Any = endpoint.open_plan
        if current is None or current.size + length > request_bytes or len(current.rows) >= request_rows:
            endpoint.open_plan = current = ReadPlan(endpoint)
            plans.append(current)
        current.rows.append((target, version, inode, number, within, length, index))
        current.size += length
        endpoint.load += length
    return True


class FileToRead(Protocol):
    layout: FileLayout

    def resolve(self, selector: ReplicaSelector) -> Resolved: ...


class Piece:
    """A read within one chunk, over all its attempts."""

    __slots__ = ("damaged", "error", "file", "length", "number", "place", "silent", "tried", "within")

    def __init__(self, file: FileToRead, number: int, within: int, length: int, place: memoryview) -> None:
        self.file = file
        self.number = number
        self.within = within
        self.length = length
        self.place = place
        self.tried: set[int] = set()  # targets
        self.silent: dict[int, int] = {}  # how often a target did not answer in time
        self.damaged: set[int] = set()  # targets that have said that they have no good copy
        self.error: ThreefsError | None = None  # of the last attempt

    def note(self, target: int, error: ThreefsError) -> None:
        """The attempt at that target has failed."""
        self.error = error
        if isinstance(error, CorruptChunk):
            self.damaged.add(target)
        elif isinstance(error, DeadlineExceeded):
            self.silent[target] = self.silent.get(target, 0) + 1


def plan_pieces(
    pieces: Sequence[Piece], selector: ReplicaSelector, request_bytes: int, request_rows: int
) -> tuple[list[ReadPlan], list[Piece]]:
    """Plans for pieces of any kind, and the pieces whose chain has no serving target. A piece is read at a replica that
    was not tried yet, if there is one. The index of a row is that of its piece."""
    plans: list[ReadPlan] = []
    open_plans: dict[str, ReadPlan] = {}
    failed = []
    for index, piece in enumerate(pieces):
        try:
            inode, replicas = _replicas(piece, selector)
        except NotServing as error:
            piece.error = error
            failed.append(piece)
            continue
        replica = choose(replicas, piece.tried)
        if replica is None:
            piece.tried.clear()
            replica = choose(replicas)
            assert replica is not None, "a chain that serves has replicas"
        endpoint, target, version = replica
        piece.tried.add(target)
        current = open_plans.get(endpoint.address)
        if current is None or current.size + piece.length > request_bytes or len(current.rows) >= request_rows:
            current = open_plans[endpoint.address] = ReadPlan(endpoint)
            current.destinations = []
            plans.append(current)
        assert current.destinations is not None, "a plan of pieces has a place for each"
        current.destinations.append(piece.place)
        current.pieces.append(piece)
        current.rows.append((target, version, inode, piece.number, piece.within, piece.length, index))
        current.size += piece.length
        endpoint.load += piece.length
    return plans, failed


def _replicas(piece: Piece, selector: ReplicaSelector) -> tuple[int, Sequence[Replica]]:
    """The inode, and the replicas of the chunk. Raises NotServing."""
    inode, _, _, stripe, places = piece.file.resolve(selector)
    replicas = places[piece.number % stripe]
    if not replicas:
        raise selector.not_serving(piece.file.layout, piece.number)
    return inode, replicas


def settle(plan: ReadPlan, reply: pb.ReadReply, results: list[Any], verify: bool) -> list[tuple[Row, ThreefsError]]:
    """Put the views of a plan's rows into `results`. Returns the rows that failed. Raises ProtocolError."""
    rows = plan.rows
    count = len(rows)
    if not len(reply.code) == len(reply.length) == len(reply.checksum) == count:
        raise ProtocolError(f"a read reply has {len(reply.code)} rows, and {count} were requested")
    if any(reply.code) or list(reply.length) != [row[5] for row in rows]:
        return _settle_rows(plan, reply, results, verify)
    if verify and not _verified(plan, reply):
        return _settle_rows(plan, reply, results, verify)
    if plan.destinations is not None:
        for row, place in zip(rows, plan.destinations, strict=True):
            results[row[6]] = place
        return []
    assert plan.buffer is not None
    view = plan.buffer.data
    at = 0
    for row in rows:
        end = at + row[5]
        results[row[6]] = view[at:end]
        at = end
    return []


def _verified(plan: ReadPlan, reply: pb.ReadReply) -> bool:
    """Whether all checksums are right. Rows of one length in one buffer are checked in a single pass."""
    checksums = reply.checksum
    rows = plan.rows
    if plan.buffer is not None:
        length = rows[0][5]
        if len(rows) >= 8 and length >= 512 and not length & (length - 1) and plan.size == length * len(rows):
            alike = all(row[5] == length for row in rows)
            if alike:
                whole = np.fromiter(checksums, np.dtype("<u4"), len(rows)).tobytes()
                return combine(whole, length, length) == crc32c(plan.buffer.data)
    return all(crc32c(place) == checksum for place, checksum in zip(plan.places(), checksums, strict=True))


def _settle_rows(
    plan: ReadPlan, reply: pb.ReadReply, results: list[Any], verify: bool
) -> list[tuple[Row, ThreefsError]]:
    failed: list[tuple[Row, ThreefsError]] = []
    columns = zip(plan.rows, plan.places(), reply.code, reply.length, reply.checksum, strict=True)
    for row, place, code, length, checksum in columns:
        results[row[6]] = place
        if code == _MISSING:
            length = 0
        elif code:
            what = error_of(code).message
            failed.append((row, error_of(code, f"{what}: {_place(plan, row)}")))
            continue
        elif length > len(place):
            raise ProtocolError(f"a read reply has {length} bytes for a row of {len(place)}")
        elif verify and length and crc32c(place[:length]) != checksum:
            failed.append((row, ChecksumMismatch(f"bytes did not arrive as they were sent: {_place(plan, row)}")))
            continue
        if length < len(place):
            place[length:] = bytes(len(place) - length)  # a hole in the file
            results[row[6]] = Hole(place, length)
    return failed


def _place(plan: ReadPlan, row: Row) -> str:
    return f"chunk {row[3]} of inode {row[2]}, at target {row[0]} of the storage process {plan.endpoint.address}"


class Hole:
    """A row of which only the first `stored` bytes exist. The rest was filled with zeros."""

    __slots__ = ("place", "stored")

    def __init__(self, place: memoryview, stored: int) -> None:
        self.place = place
        self.stored = stored
