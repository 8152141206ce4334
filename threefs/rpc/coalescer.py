"""Coalesces calls that are made at the same time: one message, one transaction and one commit for many of them.

No call waits for others to come. Calls of one turn of the loop are sent at its end. While `_MAX_MESSAGES` are in
flight, the service has work in any case, so new calls wait until one of the messages is answered. A single call is sent
as it is; if the previous one was single too, it is sent at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from threefs.background import BackgroundTasks
from threefs.errors import Cancelled, ThreefsError, error_of

_MAX_MESSAGES = 2  # in flight: the service works on one while the other is on its way, or waits for the disk
_MIN_CALLS = 16  # calls in a message, if that many wait
_MAX_CALLS = 256

#: Gets the key and the calls of a message; returns the outcome of each call.
Send = Callable[[Any, list[Any]], Awaitable[list[Any]]]


_Waiting = tuple[Any, "asyncio.Future[Any]"]


@dataclass(slots=True)
class _Queue:
    """Calls that may share a message."""

    waiting: list[_Waiting] = field(default_factory=list)
    messages_in_flight: int = 0
    calls_in_flight: int = 0  # in those messages
    is_scheduled: bool = False  # for dispatch in this turn of the loop


class Coalescer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._queues: dict[Hashable, _Queue] = {}
        self._messages = BackgroundTasks()
        self._unfinished = 0  # calls
        self._was_alone = False  # no other call was unfinished when the last one came

    def try_bypass(self) -> bool:
        """True: the caller sends its call itself, at once, and calls `bypass_finished` afterwards.

        This is for a program that makes one call after the other. Where several calls come in one turn, the first one
        would not share their message.
        """
        if self._unfinished or not self._was_alone:
            return False
        self._unfinished = 1
        return True

    def bypass_finished(self) -> None:
        self._unfinished -= 1

    def add(self, key: Hashable, call: Any) -> "asyncio.Future[Any]":
        """Queue a call, to be sent together with others of the same key. Returns the future of its outcome."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.waiting.append((call, future))
        self._was_alone = not self._unfinished
        self._unfinished += 1
        if queue.messages_in_flight < _MAX_MESSAGES:
            self._schedule(key, queue)
        return future

    def _schedule(self, key: Hashable, queue: _Queue) -> None:
        if not queue.is_scheduled:
            queue.is_scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch, key, queue)

    def _dispatch(self, key: Hashable, queue: _Queue) -> None:
        queue.is_scheduled = False
        self._drop_cancelled(queue)
        while queue.waiting and queue.messages_in_flight < _MAX_MESSAGES:
            share = -(-(len(queue.waiting) + queue.calls_in_flight) // _MAX_MESSAGES)
            count = min(max(share, _MIN_CALLS), _MAX_CALLS)
            part, queue.waiting = queue.waiting[:count], queue.waiting[count:]
            queue.messages_in_flight += 1
            queue.calls_in_flight += len(part)
            self._messages.attempt("calls that share a message", self._send_message(key, queue, part))
        if not queue.messages_in_flight:
            self._queues.pop(key, None)

    def _drop_cancelled(self, queue: _Queue) -> None:
        """Calls whose callers have gone are not sent."""
        waiting = [each for each in queue.waiting if not each[1].done()]
        self._unfinished -= len(queue.waiting) - len(waiting)
        queue.waiting = waiting

    async def _send_message(self, key: Hashable, queue: _Queue, part: list[_Waiting]) -> None:
        try:
            outcomes = await self._send(key, [call for call, _ in part])
            for (_, future), outcome in zip(part, outcomes, strict=True):
                if future.done():  # the caller was cancelled
                    continue
                if isinstance(outcome, ThreefsError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
        except ThreefsError as error:
            _fail(part, error)
        finally:
            _fail(part, Cancelled("the connection is being closed"))  # no effect on futures that are done
            queue.messages_in_flight -= 1
            queue.calls_in_flight -= len(part)
            self._unfinished -= len(part)
            if queue.waiting:  # callers that were just answered often call again in the next turn
                asyncio.get_running_loop().call_soon(self._schedule, key, queue)
            else:
                self._dispatch(key, queue)

    async def close(self) -> None:
        """Cancel the messages in flight. Their calls and those that wait fail with Cancelled."""
        for queue in self._queues.values():
            waiting, queue.waiting = queue.waiting, []
            self._unfinished -= len(waiting)
            _fail(waiting, Cancelled("the connection is being closed"))
        await self._messages.stop()


def _fail(part: list[_Waiting], error: ThreefsError) -> None:
    for _, future in part:
        if not future.done():
            future.set_exception(error_of(error.code, error.message))  # each its own, with a traceback of its own
