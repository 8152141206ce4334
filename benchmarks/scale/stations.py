"""The stations of a read at a host: a core, a disk, and the slots of request-to-send."""

import math
from collections import deque
from random import Random

import simpy


class Station:
    """Does one thing after the other, in the order in which they come."""

    __slots__ = ("_accepted_s", "_env", "_free_at")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._accepted_s = 0.0
        self._free_at = 0.0

    @property
    def busy_s(self) -> float:
        """How long it has worked until now."""
        return self._accepted_s - max(0.0, self._free_at - self._env.now)

    def delay(self, service_s: float) -> float:
        """Seconds from now until something that comes now is done."""
        now: float = self._env.now
        self._free_at = max(now, self._free_at) + service_s
        self._accepted_s += service_s
        return self._free_at - now


class Disk:
    """Transfers one block after the other; the latency of each comes on top, and varies (lognormal)."""

    __slots__ = ("_latency_s", "_random", "_spread", "_transfers", "bytes_per_s")

    def __init__(
        self, env: simpy.Environment, bytes_per_s: float, latency_s: float, spread: float, random: Random
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._transfers = Station(env)
        self._latency_s = latency_s
        self._spread = spread
        self._random = random

    @property
    def busy_s(self) -> float:
        return self._transfers.busy_s

    def delay(self, size: int) -> float:
        latency_s = self._latency_s * math.exp(self._random.gauss(0.0, self._spread))
        return self._transfers.delay(size / self.bytes_per_s) + latency_s


class Slots:
    """How many services may send to a host at a time. None of the slots is ever taken without a limit."""

    __slots__ = ("_env", "_free", "_waiting")

    def __init__(self, env: simpy.Environment, limit: int | None) -> None:
        self._env = env
        self._free = limit
        self._waiting: deque[simpy.Event] = deque()

    def take_now(self) -> bool:
        """Whether an answer may come at once: the grant rides on its request."""
        if self._free is None:
            return True
        if self._free and not self._waiting:
            self._free -= 1
            return True
        return False

    def granted(self) -> simpy.Event:
        """For an answer that was announced; those before it come first."""
        event: simpy.Event = self._env.event()
        if self._free and not self._waiting:
            self._free -= 1
            event.succeed()
        else:
            self._waiting.append(event)
        return event

    def give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().succeed()
        elif self._free is not None:
            self._free += 1
