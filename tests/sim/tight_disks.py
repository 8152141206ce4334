"""Disks with less room left than writes of clients may take, or with none, and when a chain may refuse writes because
of them."""

from collections.abc import Callable

from tests.harness.simulated.disk import DISK_BYTES
from tests.sim.world import World
from threefs.routing import Chain, PublicState, Routing

_LOOK_S = 0.02


class TightDisks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._hosts: set[str] = set()
        self._looking = False

    def begin(self, host: str, left_bytes: int | None = None) -> Callable[[], None]:
        """So much is left, or a hundredth. Returns how to end it."""
        disk = self._world.disks[host]
        used = disk.capacity_bytes - disk.free_bytes()
        disk.capacity_bytes = used * 100 // 99 if left_bytes is None else used + left_bytes
        self._hosts.add(host)
        if not self._looking:
            self._look()

        def end() -> None:
            self._hosts.discard(host)
            disk.capacity_bytes = DISK_BYTES

        return end

    def _look(self) -> None:
        """A head without room gives way to a member that has some. Writes may be refused only if all members that are
        not out of their chain have such disks."""
        self._looking = bool(self._hosts)
        if not self._looking:
            return
        routing = self._world.routing()
        if routing is not None and any(self._has_no_room(routing, chain) for chain in routing.chains.values()):
            self._world.full_at = self._world.loop.time()
        self._world.loop.call_later(_LOOK_S, self._look)

    def _has_no_room(self, routing: Routing, chain: Chain) -> bool:
        present = [m.target_id for m in chain.members if m.state not in (PublicState.OFFLINE, PublicState.LASTSRV)]
        return bool(present) and {f"s{routing.targets[target].node_id}" for target in present} <= self._hosts
