"""Messages to the next targets that changes share: alone, each small change costs four messages on three replicas.

Changes that come in one message, as those of an fsync do, are sent ahead at the same time, and are durable at the same
time, because they share a sync. So what is begun in one turn of the event loop for the same process goes there in one
message at its end. Nothing waits longer for others to come. A change that comes alone is sent ahead at once,
because the turn may end with a sync.

A message is answered as a whole. So that a slow chain does not hold up the others, the receiver of versions answers
without those that are slow, after `_ANSWER_AFTER_MS`; they are sent again by themselves.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import (
    ConnectionIdle,
    DeadlineExceeded,
    InProgress,
    ProtocolError,
    ThreefsError,
    Unavailable,
    error_of,
)
from threefs.ids import TargetId
from threefs.rpc.handshake import SHARED_FORWARDS_FEATURE
from threefs.rpc.methods import FORWARD_STAGED, FORWARD_VERSIONS, STAGE_AHEAD
from threefs.wire import storage_pb2 as pb
from threefs_storage.peer_targets import PeerTargets

C = TypeVar("C")

#: The largest change that shares a message: it is copied, because the message outlives a change that is cancelled.
SHARED_BYTES = 16 << 10
_MAX_CALLS = 256
_MAX_MESSAGE_BYTES = 1 << 20
_MESSAGE_S = 5.0
#: Much longer than a change takes on a chain that works.
_ANSWER_AFTER_MS = 250

#: Address of the receiver, and how many targets the calls have to pass behind it.
_Way = tuple[str, int]


@dataclass(slots=True)
class _Row(Generic[C]):
    call: C
    outcome: "asyncio.Future[pb.ChunkWriteResult]"


class TurnCalls(Generic[C]):
    """Collects the calls of a turn of the event loop."""

    def __init__(self, send: Callable[[_Way, list[_Row[C]]], None]) -> None:
        self._send = send
        self._turns: dict[_Way, list[_Row[C]]] = {}

    def has(self, way: _Way) -> bool:
        """Whether there is a call for this way in this turn."""
        return way in self._turns

    def begin(self, way: _Way) -> list[_Row[C]]:
        """The calls for this way in this turn."""
        rows = self._turns.get(way)
        if rows is None:
            rows = self._turns[way] = []
            asyncio.get_running_loop().call_soon(self._end_turn, way)
        return rows

    def add(self, way: _Way, call: C) -> "asyncio.Future[pb.ChunkWriteResult]":
        """The call is sent at the end of this turn. Cancelling the future before drops it."""
        outcome: asyncio.Future[pb.ChunkWriteResult] = asyncio.get_running_loop().create_future()
        self.begin(way).append(_Row(call, outcome))
        return outcome

    def _end_turn(self, way: _Way) -> None:
        rows = [row for row in self._turns.pop(way) if not row.outcome.done()]
        for first in range(0, len(rows), _MAX_CALLS):
            self._send(way, rows[first : first + _MAX_CALLS])


@dataclass(frozen=True, slots=True)
class Ahead:
    """A change that goes ahead. `sent` is called when the kernel has it."""

    write: pb.ChunkWrite
    payload: bytes
    sent: Callable[[], None]


class SharedMessages:
    """One per storage process."""

    def __init__(self, peers: PeerTargets, *, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._aheads: TurnCalls[Ahead] = TurnCalls(self._send_aheads)
        self._forwards: TurnCalls[pb.ForwardStagedRequest] = TurnCalls(self._send_forwards)
        self._several = False  # several changes begin in this turn

    def expect_several(self) -> None:
        """Several changes begin in this turn of the event loop: none is sent ahead by itself."""
        self._several = True
        asyncio.get_running_loop().call_soon(self._expect_one)

    def _expect_one(self) -> None:
        self._several = False

    def begin_ahead(
        self, target: TargetId, write: pb.ChunkWrite, payload: Buffer, hops: int, sent: Callable[[], None]
    ) -> "asyncio.Future[pb.ChunkWriteResult] | None":
        """Send a change ahead together with others. Nothing uses the payload when this returns. None if it does not
        share a message: it is large, or alone, or the receiver does not take several changes, or has no room."""
        size, way = memoryview(payload).nbytes, (self._peers.address_of(target), hops)
        if size > SHARED_BYTES or not self._peers.has_room(way[0], STAGE_AHEAD, SHARED_FORWARDS_FEATURE, size, hops):
            return None
        if not (self._several or self._aheads.has(way)):
            self._aheads.begin(way)
            return None
        return self._aheads.add(way, Ahead(write, bytes(payload), sent))

    def _send_aheads(self, way: _Way, rows: list[_Row[Ahead]]) -> None:
        for part in _of_bytes(rows):
            payload = [row.call.payload for row in part if row.call.payload]
            request = pb.StageAheadRequest(writes=[row.call.write for row in part])
            call = self._peers.begin_optional(
                way[0],
                STAGE_AHEAD,
                request,
                feature=SHARED_FORWARDS_FEATURE,
                timeout_s=_MESSAGE_S,
                payload=payload,
                hops=way[1],
                sent=partial(_all_sent, part),
            )
            _answer_by(call, part, Unavailable(f"{way[0]} takes no change ahead at present"))

    async def forward(
        self, target: TargetId, version: pb.ForwardStagedRequest, timeout_s: float, hops: int
    ) -> pb.ChunkWriteResult:
        """Forward a version whose payload has gone ahead. Raises what the receiver refuses with, and errors of the
        call."""
        way = self._peers.address_of(target), hops
        if self._peers.has_room(way[0], FORWARD_VERSIONS, SHARED_FORWARDS_FEATURE, 0, hops):
            return await self._forward_together(way, target, version, timeout_s, hops)
        return await self._forward_alone(target, version, timeout_s, hops)

    async def _forward_together(
        self, way: _Way, target: TargetId, version: pb.ForwardStagedRequest, timeout_s: float, hops: int
    ) -> pb.ChunkWriteResult:
        deadline = self._clock.monotonic() + timeout_s
        try:
            return await self._peers.observe(target, _within(timeout_s, self._forwards.add(way, version)))
        except (InProgress, ConnectionIdle):  # neither has to wait for another attempt
            left_s = max(0.001, deadline - self._clock.monotonic())
            return await self._forward_alone(target, version, left_s, hops)

    async def _forward_alone(
        self, target: TargetId, version: pb.ForwardStagedRequest, timeout_s: float, hops: int
    ) -> pb.ChunkWriteResult:
        return await self._peers.call(target, FORWARD_STAGED, version, timeout_s=timeout_s, hops=hops)

    def _send_forwards(self, way: _Way, rows: list[_Row[pb.ForwardStagedRequest]]) -> None:
        after_ms = _ANSWER_AFTER_MS if len(rows) > 1 else 0
        request = pb.ForwardVersionsRequest(versions=[row.call for row in rows], answer_after_ms=after_ms)
        call = self._peers.begin_optional(
            way[0],
            FORWARD_VERSIONS,
            request,
            feature=SHARED_FORWARDS_FEATURE,
            timeout_s=_MESSAGE_S,
            hops=way[1],
        )
        _answer_by(call, rows, InProgress("each has to wait for its turn"))


def _of_bytes(rows: list[_Row[Ahead]]) -> Iterator[list[_Row[Ahead]]]:
    """Parts that have no more bytes than a message may have."""
    part: list[_Row[Ahead]] = []
    size = 0
    for row in rows:
        size += len(row.call.payload)
        if part and size > _MAX_MESSAGE_BYTES:
            yield part
            part, size = [], len(row.call.payload)
        part.append(row)
    yield part


def _all_sent(rows: list[_Row[Ahead]]) -> None:
    for row in rows:
        row.call.sent()


async def _within(timeout_s: float, outcome: "asyncio.Future[pb.ChunkWriteResult]") -> pb.ChunkWriteResult:
    if timeout_s >= _MESSAGE_S:  # the message has this deadline
        return await outcome
    try:
        async with asyncio.timeout(timeout_s):
            return await outcome
    except TimeoutError:
        raise DeadlineExceeded(f"a forward was not answered within {timeout_s:.1f} s") from None


def _answer_by(call: "asyncio.Future[Any] | None", rows: list[_Row[Any]], unsent: ThreefsError) -> None:
    """The outcome of each row comes with the answer of the message; it is `unsent` if there is no message."""
    assert not any(row.outcome.done() for row in rows), "a change has one outcome"
    if call is None:
        _fail(rows, unsent)
    else:
        call.add_done_callback(partial(_answer, rows))
        for row in rows:
            row.outcome.add_done_callback(partial(_give_up, rows, call))


def _give_up(rows: list[_Row[Any]], call: "asyncio.Future[Any]", _: object) -> None:
    """When every change of the message was cancelled, the receiver should not go on with them."""
    if not call.done() and all(row.outcome.cancelled() for row in rows):
        call.cancel()


def _answer(rows: list[_Row[Any]], call: "asyncio.Future[Any]") -> None:
    if call.cancelled():
        return
    if (error := call.exception()) is not None:
        assert isinstance(error, ThreefsError), "calls fail with errors of threefs"
        _fail(rows, error)
        return
    results = call.result().results
    if len(results) != len(rows):
        _fail(rows, ProtocolError(f"{len(results)} results came for {len(rows)} changes"))
        return
    for row, result in zip(rows, results, strict=True):
        if row.outcome.done():  # its change was cancelled
            continue
        if result.code:
            _fail_one(row, error_of(result.code, result.message))
        else:
            row.outcome.set_result(result)


def _fail(rows: list[_Row[Any]], error: ThreefsError) -> None:
    for row in rows:
        if not row.outcome.done():
            _fail_one(row, error_of(error.code, error.message))  # each its own, with its own traceback


def _fail_one(row: _Row[Any], error: ThreefsError) -> None:
    """Set the error, and retrieve it: asyncio logs an error that its cancelled change does not retrieve."""
    row.outcome.set_exception(error)
    row.outcome.exception()
