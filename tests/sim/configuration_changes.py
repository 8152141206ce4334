"""An administrator changes the configuration of the cluster while there are faults: running processes take the values.

AT tune          some values become others
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim.administrator import administer
from tests.sim.world import World
from threefs.configuration import text_of
from threefs.errors import InvalidArgument, NotFound
from threefs.rpc.methods import GET_CONFIGURATION, SET_CONFIGURATION
from threefs.wire import manager_pb2 as pb

KIND = "tune"
#: What a seed draws for the whole run otherwise, and other bounds. Not how often is looked: checks wait for that.
VALUES: dict[str, tuple[int | float, ...]] = {
    "background_share": (0.01, 0.1, 1.0),
    "cached_records": (2, 20, 32_768),
    "deferred_bytes": (0, 400, 4 << 10, 64 << 10),
    "deferred_changes": (1, 2, 128),
    "inline_bytes": (0, 400, 16 << 10, 128 << 10),
    "moves_filling_disk": (1, 4),
    "moves_reading_disk": (1, 4),
    "removals_at_once": (1, 16),
}
_PAUSE_S = (0.3, 4.0)


class ConfigurationChanges:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = SeededRandom(world.seed, KIND)
        self._asked = 0
        self._calls: set[asyncio.Task[None]] = set()

    def begin(self) -> Callable[[], Any]:
        call = self._world.loop.create_task(self._change())
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return lambda: None

    async def settle(self) -> None:
        """Wait until the managers have taken all in."""
        while self._calls:
            await asyncio.wait(self._calls)

    async def _change(self) -> None:
        self._asked += 1
        changes = [
            pb.ConfigurationChange(name=name, value=text_of(values[self._dice.below(len(values))]))
            for name, values in VALUES.items()
            if self._dice.chance(0.3)
        ]
        call_id = self._dice.token(16)
        try:
            known = await administer(
                self._world, f"admin.get.{self._asked}", GET_CONFIGURATION, pb.GetConfigurationRequest()
            )
            await administer(
                self._world,
                f"admin.set.{self._asked}",
                SET_CONFIGURATION,
                pb.SetConfigurationRequest(
                    known_version=known.configuration.version, changes=changes, who="administrator", call_id=call_id
                ),
            )
        except (InvalidArgument, NotFound) as error:  # another change came first, or the store of the managers is empty
            self._world.tell(f"the configuration is not changed: {error}")


def draw(dice: SeededRandom, length_s: float) -> list[float]:
    """The moments."""
    moments = []
    at = dice.uniform(*_PAUSE_S)
    while at < length_s:
        moments.append(at)
        at += dice.uniform(*_PAUSE_S)
    return moments
