"""Batches of reads: rows gathered into one request per storage process, and answers taken apart.

This is the hot path. No I/O happens here.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from threefs.checksums import combine, crc32c
from threefs.errors import ChecksumMismatch, ChunkNotFound, ProtocolError, ThreefsError, error_of
from threefs.wire import storage_pb2 as pb
from threefs_client.data.replica_selector import ReplicaEndpoint, Resolved

#: (target, chain version, inode, chunk number, offset in chunk, length, index of the row)
Row = tuple[int, int, int, int, int, int, int]

_MISSING = ChunkNotFound.code
_INFINITE = float("inf")


class ReadPlan:
    """One request to one storage process, and where its answer goes."""

    __slots__ = ("buffer", "destinations", "endpoint", "rows", "size")

    def __init__(self, endpoint: ReplicaEndpoint) -> None:
        self.endpoint = endpoint
        self.rows: list[Row] = []
        self.size = 0  # bytes asked for
        self.destinations: list[memoryview] | None = None  # None: a buffer of our own, rows one after the other
        self.buffer: NDArray[np.uint8] | None = None

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
        """Where the payload of the reply lands."""
        assert isinstance(reply, pb.ReadReply)
        if size == self.size:
            if self.destinations is not None:
                return self.destinations
            self.buffer = np.empty(size, np.uint8)
            return (self.buffer.data,)
        return self._short_sink(reply, size)

    def _short_sink(self, reply: pb.ReadReply, size: int) -> list[memoryview]:
        lengths = reply.length
        places = self.places()
        if len(lengths) != len(places) or sum(lengths) != size:
            raise ProtocolError("the lengths of a read reply do not fit its payload")
        views = []
        for place, length in zip(places, lengths, strict=True):
            if length > len(place):
                raise ProtocolError("a read reply has more bytes than were asked for")
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


def plan(
    rows: Sequence[tuple[Any, int, int]],
    files: Mapping[Any, tuple[Resolved, int]],
    request_bytes: int,
    request_rows: int,
) -> list[ReadPlan] | None:
    """Plans for (file key, offset, length) rows, or None when one of them needs more care.

    `files` has (what the planner needs, length in bytes) of each file. Care is needed by rows that are empty, that
    cross a chunk boundary or that reach beyond the known end of the file.
    """
    plans: list[ReadPlan] = []
    complete = False
    try:
        complete = _fill(rows, files, request_bytes, request_rows, plans)
    finally:
        for made in plans:
            made.endpoint.open_plan = None
            if not complete:
                made.endpoint.load -= made.size
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
        lowest: float = _INFINITE
        for replica in places[number % stripe]:
            load = replica[0].load
            if load < lowest:
                lowest = load
                best = replica
        endpoint, target, version = best
        current: Any = endpoint.open_plan
        if current is None or current.size + length > request_bytes or len(current.rows) >= request_rows:
            endpoint.open_plan = current = ReadPlan(endpoint)
            plans.append(current)
        current.rows.append((target, version, inode, number, within, length, index))
        current.size += length
        endpoint.load += length
    return True


def settle(done: ReadPlan, reply: pb.ReadReply, results: list[Any], verify: bool) -> list[tuple[Row, ThreefsError]]:
    """Put the views of a plan's rows into `results`. Returns the rows that failed. Raises ProtocolError."""
    rows = done.rows
    count = len(rows)
    if not len(reply.code) == len(reply.length) == len(reply.checksum) == count:
        raise ProtocolError("a read reply has not a row for each that was asked for")
    if any(reply.code) or list(reply.length) != [row[5] for row in rows]:
        return _settle_rows(done, reply, results, verify)
    if verify and not _verified(done, reply):
        return _settle_rows(done, reply, results, verify)
    if done.destinations is not None:
        for row, place in zip(rows, done.destinations, strict=True):
            results[row[6]] = place
        return []
    assert done.buffer is not None
    view = done.buffer.data
    at = 0
    for row in rows:
        end = at + row[5]
        results[row[6]] = view[at:end]
        at = end
    return []


def _verified(done: ReadPlan, reply: pb.ReadReply) -> bool:
    """True when all rows are right, found out with one pass over a buffer of equal rows where that is possible."""
    checksums = reply.checksum
    rows = done.rows
    if done.buffer is not None:
        length = rows[0][5]
        if len(rows) >= 8 and length >= 512 and not length & (length - 1) and done.size == length * len(rows):
            alike = all(row[5] == length for row in rows)
            if alike:
                whole = np.fromiter(checksums, np.dtype("<u4"), len(rows)).tobytes()
                return combine(whole, length, length) == crc32c(done.buffer.data)
    return all(crc32c(place) == checksum for place, checksum in zip(done.places(), checksums, strict=True))


def _settle_rows(
    done: ReadPlan, reply: pb.ReadReply, results: list[Any], verify: bool
) -> list[tuple[Row, ThreefsError]]:
    failed: list[tuple[Row, ThreefsError]] = []
    columns = zip(done.rows, done.places(), reply.code, reply.length, reply.checksum, strict=True)
    for row, place, code, length, checksum in columns:
        results[row[6]] = place
        if code == _MISSING:
            length = 0
        elif code:
            failed.append((row, error_of(code, f"read of chunk {row[3]} of inode {row[2]} at target {row[0]}")))
            continue
        elif length > len(place):
            raise ProtocolError("a read reply has more bytes than were asked for")
        elif verify and length and crc32c(place[:length]) != checksum:
            message = f"chunk {row[3]} of inode {row[2]} from target {row[0]} did not arrive as it was sent"
            failed.append((row, ChecksumMismatch(message)))
            continue
        if length < len(place):
            place[length:] = bytes(len(place) - length)  # a hole in the file
            results[row[6]] = Hole(place, length)
    return failed


class Hole:
    """A row of which only the first `stored` bytes exist; the rest was filled with zeros."""

    __slots__ = ("place", "stored")

    def __init__(self, place: memoryview, stored: int) -> None:
        self.place = place
        self.stored = stored
