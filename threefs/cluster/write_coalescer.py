"""Small changes of chunks that tasks make at the same time share messages to the storage process of their chain's head.

Each change has its own outcome, and its caller waits no longer than it wants to. A service answers a message as a
whole. So that the changes of a chain that is slow at present do not hold up the others, the service answers without
them after `_ANSWER_AFTER_MS`. They are sent again by themselves, and so are all changes of that chain until it has
confirmed one.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, Protocol

from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import DeadlineExceeded, InProgress, ProtocolError, ThreefsError, error_of
from threefs.rpc.coalescer import Coalescer
from threefs.wire.storage_pb2 import ChunkWriteResult, WriteReply, WriteRequest

#: The largest request that shares a message: with larger ones a message saves nothing.
MAX_BYTES = 64 << 10
#: Much longer than a change takes on a chain that works.
_ANSWER_AFTER_MS = 250


class Send(Protocol):
    """Sends one message."""

    def __call__(
        self, address: str, request: WriteRequest, payload: Sequence[Buffer], timeout_s: float
    ) -> Awaitable[WriteReply]: ...


class _Request(NamedTuple):
    request: WriteRequest
    payload: bytes
    deadline: float


_Outcome = Sequence[ChunkWriteResult] | ThreefsError


class WriteCoalescer:
    def __init__(self, send: Send, most_bytes: int, most_rows: int, *, clock: Clock) -> None:
        """A message has `most_bytes` of payload and `most_rows` changes at most, unless one request has more."""
        self._send = send
        self._most_bytes = most_bytes
        self._most_rows = most_rows
        self._clock = clock
        self._coalescer = Coalescer(self._send_calls)
        self._slow: set[int] = set()  # heads of slow chains

    async def write(
        self, address: str, request: WriteRequest, payload: Sequence[Buffer], timeout_s: float, *, alone: bool
    ) -> Sequence[ChunkWriteResult]:
        """Send changes to the process at `address`, and return the result of each. `alone`: they share no message.

        Raises what the call raises. Nothing uses the payload any more when this ends.
        """
        if alone or not self._may_share(request, payload):
            return await self._send_alone(address, request, payload, timeout_s)
        if self._coalescer.try_bypass():
            try:
                return await self._send_alone(address, request, payload, timeout_s)
            finally:
                self._coalescer.bypass_finished()
        # A message outlives a caller that is cancelled, so it has a copy of the payload.
        shared = _Request(request, b"".join(payload), self._clock.monotonic() + timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                results: Sequence[ChunkWriteResult] = await self._coalescer.add(address, shared)
        except TimeoutError:
            raise DeadlineExceeded(f"{address} did not answer a write within the deadline") from None
        return results

    def _may_share(self, request: WriteRequest, payload: Sequence[Buffer]) -> bool:
        is_slow = self._slow and any(write.target in self._slow for write in request.writes)
        return not is_slow and sum(map(len, payload)) <= MAX_BYTES

    async def _send_alone(
        self, address: str, request: WriteRequest, payload: Sequence[Buffer], timeout_s: float
    ) -> Sequence[ChunkWriteResult]:
        results = (await self._send(address, request, payload, timeout_s)).results
        if len(results) != len(request.writes):
            raise ProtocolError(f"{address} gave {len(results)} results of {len(request.writes)} writes")
        for write, result in zip(request.writes, results, strict=True):
            if result.code == InProgress.code:
                self._slow.add(write.target)
            elif self._slow and not result.code:
                self._slow.discard(write.target)
        return results

    async def _send_calls(self, address: str, requests: list[_Request]) -> list[_Outcome]:
        messages = list(self._messages(requests))
        if len(messages) == 1:
            return await self._send_message(address, requests)
        outcomes = await asyncio.gather(*(self._send_message(address, message) for message in messages))
        return [outcome for message in outcomes for outcome in message]

    def _messages(self, requests: list[_Request]) -> Iterator[list[_Request]]:
        message: list[_Request] = []
        size = rows = 0
        for each in requests:
            size, rows = size + len(each.payload), rows + len(each.request.writes)
            if message and (size > self._most_bytes or rows > self._most_rows):
                yield message
                message, size, rows = [], len(each.payload), len(each.request.writes)
            message.append(each)
        yield message

    async def _send_message(self, address: str, requests: list[_Request]) -> list[_Outcome]:
        timeout_s = max(0.001, max(each.deadline for each in requests) - self._clock.monotonic())
        payload = [each.payload for each in requests if each.payload]
        request = WriteRequest(answer_after_ms=_ANSWER_AFTER_MS)
        for each in requests:
            request.writes.extend(each.request.writes)
        try:
            found = await self._send_alone(address, request, payload, timeout_s)
        except ThreefsError as error:
            return [error_of(error.code, error.message) for _ in requests]
        results = iter(found)
        return [[next(results) for _ in each.request.writes] for each in requests]
