"""Disks with less room left than writes of clients may take, with none, or with none that they give, disks that stay
small, and when a chain may refuse writes because of them."""

from collections.abc import Callable

from tests.harness.simulated.disk import DISK_BYTES
from tests.sim.world import LEASE_S, World
from threefs.routing import Chain, PublicState, Routing

_LOOK_S = 0.02


class TightDisks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._hosts: set[str] = set()
        self._refusing: set[str] = set()  # disks that say that they have room
        self._sizes: dict[str, int] = {}  # of small disks
        self._filled: set[str] = set()  # those whose user has files
        self._ended: dict[str, float] = {}  # when that was over
        self._looking = False
        self._routing: Routing | None = None  # the newest
        world.is_full = self._is_full
        world.on_routing = self._note

    def begin(self, host: str, left_bytes: int | None = None) -> Callable[[], None]:
        """So much is left, or a hundredth. Returns how to end it."""
        disk = self._world.disks[host]
        used = disk.capacity_bytes - disk.free_bytes()
        left_bytes = used // 99 if left_bytes is None else left_bytes
        disk.capacity_bytes = min(used + left_bytes, self._size(host))
        self._hosts.add(host)
        self._note_tighter()

        def end() -> None:
            self._hosts.discard(host)
            self._ended[host] = self._world.loop.time()
            disk.capacity_bytes = self._size(host)

        return end

    def shrink(self, host: str, left_bytes: int) -> Callable[[], None]:
        """So much is left, and the disk stays as small. Returns how to tell that the files which fill it are gone."""
        disk = self._world.disks[host]
        used = disk.capacity_bytes - disk.free_bytes()
        self._sizes[host] = used + left_bytes
        disk.capacity_bytes = min(disk.capacity_bytes, self._sizes[host])
        self._filled.add(host)
        self._note_tighter()
        return lambda: self._filled.discard(host)

    def small_hosts(self) -> set[str]:
        """Those that were made small, also when the files that filled them are gone."""
        return set(self._sizes)

    def _small(self) -> set[str]:
        """Those that may be full. Files that fill one are at other members of its chains, too, so all of these may be
        full until all such files are gone."""
        return set(self._sizes) if self._filled else set()

    def _size(self, host: str) -> int:
        return self._sizes.get(host, DISK_BYTES)

    def refuse(self, host: str, left_bytes: int) -> Callable[[], None] | None:
        """The disk has a quota, so that it takes only so much, and says that it has room. Returns how to end it."""
        if host in self._refusing:
            return None
        disk = self._world.disks[host]
        disk.quota_bytes = disk.capacity_bytes - disk.free_bytes() + left_bytes
        self._refusing.add(host)
        self._note_tighter()

        def end() -> None:
            self._refusing.discard(host)
            self._ended[host] = self._world.loop.time()
            disk.quota_bytes = None

        return end

    def _note_tighter(self) -> None:
        if self._looking:
            self._note(self._newest())
        else:
            self._look()

    def _look(self) -> None:
        self._looking = bool(self._tight())
        if self._looking:
            self._note(self._newest())
            self._world.loop.call_later(_LOOK_S, self._look)

    def _note(self, routing: Routing | None) -> None:
        """Also with each new routing and each disk that gets tighter: a chain may lack room for less time than passes
        between two looks (seed 64207)."""
        if self._lacks_room(routing):
            self._world.full_at = self._world.loop.time()

    def _is_full(self) -> bool:
        return self._lacks_room(self._newest())

    def _lacks_room(self, routing: Routing | None) -> bool:
        """A head without room gives way to a member that has some. Writes may be refused only if all members that are
        not out of their chain have such disks."""
        return routing is not None and any(self._has_no_room(routing, chain) for chain in routing.chains.values())

    def _newest(self) -> Routing | None:
        self._routing = self._world.routing() or self._known()
        return self._routing

    def _known(self) -> Routing | None:
        """Storage goes on with what it knows while no manager leads."""
        known = [node.storage._cluster.routing for node in self._world.storages.values()]
        known += [] if self._routing is None else [self._routing]
        return max(known, key=lambda routing: routing.version, default=None)

    def _has_no_room(self, routing: Routing, chain: Chain) -> bool:
        present = [member.target_id for member in chain.members if member.state is not PublicState.OFFLINE]
        hosts = {f"s{routing.targets[target].node_id}" for target in present}
        return bool(present) and hosts <= self._tight()

    def _tight(self) -> set[str]:
        """Those that have no room, or had none a moment ago: a target finds out a little later that it has some."""
        since = self._world.loop.time() - LEASE_S
        return self._hosts | self._refusing | self._small() | {host for host, at in self._ended.items() if at >= since}
