"""Turns of the connections of a server: how long each, and all together, may work on received frames.

While a step of the event loop goes on, everything else in the process waits: its heartbeats, its own calls, new
connections. So many busy peers, each with a short turn, would have the process taken for dead.

A turn includes what each handler does before its first wait. It does not include the rest of it, nor handlers that run
as tasks (all those of a manager, for example): however many of them are ready, the loop runs them all in one step.

Newcomers and services wait apart from all others, and get every other turn: a HELLO and a heartbeat must come in time,
also when hundreds of busy peers wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable

_TURN_S = 0.005  # of work for one connection, after which others get their turn
_STEP_S = 0.02  # of work for all of them in one step of the loop, after which the rest of the process gets its turn


class Turns:
    """Shares the steps of the running loop among connections. `now` is a clock, in seconds."""

    __slots__ = ("_began", "_first", "_is_due", "_now", "_spent_s", "_took_first", "_waiting")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = 0.0
        #: Work is added up also over steps, because a callback in each step would cost more than most steps do.
        self._spent_s = 0.0
        self._waiting: deque[Callable[[], None]] = deque()  # the first one waits for longest
        self._first: deque[Callable[[], None]] = deque()  # those that get every other turn
        self._took_first = False  # the last turn was one of them
        self._is_due = False  # `_step` comes in the next step of the loop

    def begin(self) -> bool:
        """Begin a turn. False: this step of the loop has had enough of them, so the caller has to `wait` for one."""
        if self._spent_s >= _STEP_S:
            return False
        self._began = self._now()
        return True

    def is_over(self) -> bool:
        """Whether the turn has lasted for so long that others come next. Called after each of several frames."""
        return self._now() - self._began >= _TURN_S

    def end(self) -> None:
        self._spent_s += self._now() - self._began
        if self._spent_s >= _STEP_S:
            self._go_on_later()

    def wait(self, go_on: Callable[[], None], *, first: bool = False) -> None:
        """Call `go_on`, which begins and ends a turn, in a later step, after all that wait already with this `first`:
        these get every other turn."""
        (self._first if first else self._waiting).append(go_on)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._is_due = False
        self._spent_s = 0.0
        try:
            for _ in range(len(self._first) + len(self._waiting)):  # in a step, each has one turn or few
                if self._spent_s >= _STEP_S:
                    break
                self._next()()
        finally:
            if self._first or self._waiting:
                self._go_on_later()

    def _next(self) -> Callable[[], None]:
        self._took_first = bool(self._first) and not (self._took_first and self._waiting)
        return (self._first if self._took_first else self._waiting).popleft()
