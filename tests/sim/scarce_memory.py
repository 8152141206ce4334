"""A machine has no memory for some of the buffers that a storage or meta process asks for.

AT scarce HOST FOR     so it is for a while

Only the buffers of its server are refused: their calls, or all of the connection, end, and nothing of them may stay.
Whatever else has no memory may end the process.
"""

import errno
from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim.world import World
from threefs.rpc.server import Server

KIND = "scarce"
_LASTS_S = (0.2, 3.0)
_REFUSED = 0.3
_NO_MEMORY = "a machine of the simulation has no memory"


class ScarceMemory:
    def __init__(self, world: World) -> None:
        self.refused = 0
        self._world = world
        self._dice = SeededRandom(world.seed, "scarce memory")

    def begin(self, host: str) -> Callable[[], Any] | None:
        """How to end it; None where no process runs that is not struck already."""
        server = self._server(host)
        if server is None or not self._world.processes[host].running or "take" in vars(server.pool):
            return None
        pool: Any = server.pool
        take = pool.take

        def refuse_some(length_bytes: int) -> memoryview:
            if self._dice.chance(_REFUSED):
                self.refused += 1
                raise OSError(errno.ENOMEM, _NO_MEMORY)
            buffer: memoryview = take(length_bytes)
            return buffer

        pool.take = refuse_some

        def end() -> None:
            del pool.take

        return end

    def _server(self, host: str) -> Server | None:
        node = self._world.storages.get(host) or self._world.metas.get(host)
        return None if node is None else node._server


def says_so(failure: str) -> bool:
    """Whether an error that nobody has caught is one of these: the connection has ended with it, and it is logged."""
    return _NO_MEMORY in failure


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, float]]:
    """Moments, hosts and times: one to four of a run."""
    hosts = [*world.storage_hosts, *world.meta_hosts]
    return [
        (dice.uniform(0.0, 1.0) * length_s, hosts[dice.below(len(hosts))], dice.uniform(*_LASTS_S))
        for _ in range(1 + dice.below(4))
    ]
