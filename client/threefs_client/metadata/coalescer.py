"""Calls that are made at the same time travel together: one message, one transaction, one commit for many of them.

Nobody waits for others to come. What is asked for in one turn of the loop goes out at its end; only while so many
messages are under way that the service has work in any case, what comes is kept until one of them is answered. A call
that is alone goes as it is, and if the one before it was alone too, at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from threefs.errors import Cancelled, ThreefsError, error_of

_MESSAGES = 2  # under way: one is worked on while the other is on its way, or waits for the disk
_LEAST = 16  # calls in a message, if there are so many
_MOST = 256

#: Told the key and the calls of a message; the outcome of each.
Send = Callable[[Any, list[Any]], Awaitable[list[Any]]]


_Waiting = tuple[Any, "asyncio.Future[Any]"]


@dataclass(slots=True)
class _Queue:
    """Calls that may share a message."""

    waiting: list[_Waiting] = field(default_factory=list)
    messages: int = 0
    under_way: int = 0  # calls in them
    soon: bool = False  # it is looked at in this turn of the loop


class Coalescer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._queues: dict[Hashable, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0  # calls that have not ended
        self._alone = False  # whether there was no other one when the last one came

    def let_pass(self) -> bool:
        """True: the caller sends its call itself, at once, and says with `passed` that it has ended.

        Only who calls again and again one after the other gains by that. Where several calls come in one turn, the
        first one would not travel with the others.
        """
        if self._open or not self._alone:
            return False
        self._open = 1
        return True

    def passed(self) -> None:
        self._open -= 1

    def add(self, key: Hashable, call: Any) -> "asyncio.Future[Any]":
        """The outcome of a call that goes out together with others of the same key."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.waiting.append((call, future))
        self._alone = not self._open
        self._open += 1
        if queue.messages < _MESSAGES:
            self._go_on_soon(key, queue)
        return future

    def _go_on_soon(self, key: Hashable, queue: _Queue) -> None:
        if not queue.soon:
            queue.soon = True
            asyncio.get_running_loop().call_soon(self._go_on, key, queue)

    def _go_on(self, key: Hashable, queue: _Queue) -> None:
        queue.soon = False
        while queue.waiting and queue.messages < _MESSAGES:
            share = -(-(len(queue.waiting) + queue.under_way) // _MESSAGES)
            count = min(max(share, _LEAST), _MOST)
            part, queue.waiting = queue.waiting[:count], queue.waiting[count:]
            queue.messages += 1
            queue.under_way += len(part)
            task = asyncio.get_running_loop().create_task(self._message(key, queue, part))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not queue.messages:
            self._queues.pop(key, None)

    async def _message(self, key: Hashable, queue: _Queue, part: list[_Waiting]) -> None:
        try:
            outcomes = await self._send(key, [call for call, _ in part])
            for (_, future), outcome in zip(part, outcomes, strict=True):
                if future.done():  # whoever waited has given up
                    continue
                if isinstance(outcome, ThreefsError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
        except ThreefsError as error:
            _fail(part, error)
        finally:
            _fail(part, Cancelled("the connection is being closed"))  # of no effect on those that are done
            queue.messages -= 1
            queue.under_way -= len(part)
            self._open -= len(part)
            if queue.waiting:  # who has just been answered often calls again in the next turn, and comes along
                asyncio.get_running_loop().call_soon(self._go_on_soon, key, queue)
            else:
                self._go_on(key, queue)

    async def close(self) -> None:
        """What is under way is given up."""
        for queue in self._queues.values():
            waiting, queue.waiting = queue.waiting, []
            self._open -= len(waiting)
            _fail(waiting, Cancelled("the connection is being closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _fail(part: list[_Waiting], error: ThreefsError) -> None:
    for _, future in part:
        if not future.done():
            future.set_exception(error_of(error.code, error.message))  # each its own, with a traceback of its own
