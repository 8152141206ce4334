"""Disks with less room left than writes of clients may take, and when a chain may refuse writes because of them."""

from collections.abc import Callable

from tests.harness.simulated.disk import DISK_BYTES
from tests.sim.world import World
from threefs.routing import Chain, PublicState, Routing

_LOOK_S = 0.02


class TightDisks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._hosts: set[str] = set()

    def begin(self, host: str) -> Callable[[], None]:
        """Returns how to end it."""
        disk = self._world.disks[host]
        disk.capacity_bytes = (disk.capacity_bytes - disk.free_bytes()) * 100 // 99
        self._hosts.add(host)
        self._look()

        def end() -> None:
            self._hosts.discard(host)
            disk.capacity_bytes = DISK_BYTES

        return end

    def _look(self) -> None:
        """A full head gives way to a member with room. Writes may be refused only if all members that are not out of
        their chain have tight disks."""
        if not self._hosts or self._world.was_full:
            return
        routing = self._world.routing()
        if routing is not None:
            self._world.was_full = any(self._has_no_room(routing, chain) for chain in routing.chains.values())
        self._world.loop.call_later(_LOOK_S, self._look)

    def _has_no_room(self, routing: Routing, chain: Chain) -> bool:
        present = [m.target_id for m in chain.members if m.state not in (PublicState.OFFLINE, PublicState.LASTSRV)]
        return bool(present) and {f"s{routing.targets[target].node_id}" for target in present} <= self._hosts
