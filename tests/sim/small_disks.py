"""Disks that stay small, and users whose files fill them.

AT small HOST FOR     its disk is small from now on, and a user fills it until its targets are out, or until he is told
                      that there is no room; then, or after that time, he removes all his files

No fault ends here by itself: only the removals make room. The files are chunks without names, as those of the other
clients. In the end every target serves again, and the chains of that disk take writes.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from threefs_client.context import ClientContext
from threefs_storage.health.target_recovery import _AWAY

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process
from tests.sim.host_chains import host_chains
from tests.sim.tight_disks import TightDisks
from tests.sim.workload import FIRST_INODE
from tests.sim.world import LEASE_S, World
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import NoSpace, ThreefsError
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.routing import PublicState
from threefs.wire import storage_pb2 as pb

KIND = "small"
LEFT_BYTES = 24 << 20  # what other clients write takes a part of it
BALLAST_BYTES = 1 << 20  # without it no process could start on such a disk
_FILE_BYTES = 256 << 10  # what connections take in any run
_AT_ONCE = 8
_MOST_ROUNDS = 30
_PATIENCE_S = 4 * LEASE_S
_ALL_REMOVED_S = 20 * LEASE_S
_PAUSE_S = 0.2
_LASTS_S = (2 * LEASE_S, 15 * LEASE_S)
_ALL = 0.4  # of the runs that have such disks have only such
_FIRST_INODE = FIRST_INODE + 2_000_000  # of a chain's files for one user; a thousand for each


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, float]]:
    """Moments, hosts and times: one of a run, or all."""
    hosts = world.storage_hosts
    some = hosts if dice.chance(_ALL) else [hosts[dice.below(len(hosts))]]
    return [(dice.uniform(0.0, 0.7) * length_s, host, dice.uniform(*_LASTS_S)) for host in some]


class SmallDisks:
    def __init__(self, world: World, disks: TightDisks) -> None:
        self.violations: list[str] = []
        self._world = world
        self._disks = disks
        self._users: dict[str, _User] = {}  # by the host whose disk they fill

    def begin(self, host: str) -> Callable[[], Any] | None:
        """How to let the user remove his files."""
        if host in self._users:
            return None
        has_room = self._disks.shrink(host, LEFT_BYTES)
        user = self._users[host] = _User(self._world, host, has_room)
        user.begin()
        return user.removes.set

    async def settle(self) -> None:
        """All is healed: so all files can be removed."""
        for host, user in self._users.items():
            if not await user.has_removed(_ALL_REMOVED_S):
                self.violations.append(f"I13: files that fill the disk of {host} cannot be removed")

    def away_left_s(self) -> float:
        """How long targets may still be out that hear of no removal meanwhile: until they return, and once more.
        Targets of one disk return together, and one of them may need room before the others have freed theirs."""
        left_s = [0.0]
        for host in self._users:
            left_s.append(_AWAY.limit_s(0) + _AWAY.limit_s(1))
            node = self._world.storages.get(host)
            if node is not None:
                recovery = node.storage._target_recovery
                now = recovery._clock.monotonic()
                left_s += [
                    at - now + _AWAY.limit_s(times) + _AWAY.limit_s(times + 1)
                    for times, at in recovery._returns.values()
                ]
        return max(left_s)

    async def take_writes(self) -> None:
        """Every target serves: the chains of these disks take writes again. One of several targets of a disk may leave
        once more, because the others give their free blocks back later than they return."""
        for user in self._users.values():
            self.violations += await user.writes_again()
        until = self._world.loop.time() + _PATIENCE_S + self.away_left_s()
        while self._users and not self._world.healthy():
            if self._world.loop.time() > until:
                self.violations.append("a target stays out, though the files that filled its disk are gone")
                return
            await asyncio.sleep(_PAUSE_S)


class _User:
    def __init__(self, world: World, host: str, has_room: Callable[[], None]) -> None:
        self.removes = asyncio.Event()
        self._world = world
        self._host = host
        self._has_room = has_room
        self._number = int(host[1:])
        self._process = Process(world.loop, f"user of {host}", f"u{self._number}")
        self._files: dict[ChunkId, ChainId] = {}
        self._work: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._work = self._process.start(self._fill_and_remove())

    async def has_removed(self, limit_s: float) -> bool:
        assert self._work is not None
        await asyncio.wait([self._work], timeout=limit_s)
        return self._work.done() and self._work.exception() is None

    async def writes_again(self) -> list[str]:
        """What is wrong with that."""
        try:
            await self._process.start(self._write_to_each_chain())
        except ThreefsError as error:
            return [f"chains of {self._host} take no writes, though the files that filled its disk are gone: {error}"]
        finally:
            self._process.kill()
        return []

    async def _write_to_each_chain(self) -> None:
        link = await self._link()
        for chain in host_chains(self._world.routing(), self._host, PublicState.SERVING):
            await self._extend(link, chain, _MOST_ROUNDS, count=1)

    async def _link(self) -> ClientContext:
        while True:
            try:
                return await self._world.client(self._process.host)
            except ThreefsError as error:
                self._world.tell(f"{self._process.name} is not let in: {error}")
            await asyncio.sleep(_PAUSE_S)

    async def _fill_and_remove(self) -> None:
        link = await self._link()
        await self._fill(link)
        self._world.tell(f"-- the disk of {self._host} is full of {len(self._files)} files")
        await self.removes.wait()
        files = list(self._files.items())
        for at in range(0, len(files), _AT_ONCE):
            await self._remove(link, files[at : at + _AT_ONCE])
        self._has_room()
        self._world.tell(f"-- the files that filled the disk of {self._host} are removed")

    async def _fill(self, link: ClientContext) -> None:
        for number in range(_MOST_ROUNDS):
            chains = host_chains(self._world.routing(), self._host, PublicState.SERVING, PublicState.SYNCING)
            if not chains:
                return
            for chain in chains:
                if self.removes.is_set():
                    return
                try:
                    await self._extend(link, chain, number)
                except NoSpace:
                    self.removes.set()
                except ThreefsError as error:
                    self._world.tell(f"{self._process.name}: a write failed: {error}")

    async def _extend(self, link: ClientContext, chain: ChainId, number: int, count: int = _AT_ONCE) -> None:
        inode = InodeId(_FIRST_INODE + 1000 * self._number + chain)
        chunks = [ChunkId(inode, _AT_ONCE * number + each) for each in range(count)]
        self._files.update(dict.fromkeys(chunks, chain))
        updates = [ChunkUpdate(chain, chunk, pb.EXTEND, _FILE_BYTES, length=_FILE_BYTES) for chunk in chunks]
        await link.chunks.apply(updates, timeout_s=_PATIENCE_S)

    async def _remove(self, link: ClientContext, files: Sequence[tuple[ChunkId, ChainId]]) -> None:
        updates = [ChunkUpdate(chain, chunk, pb.REMOVE, _FILE_BYTES, freed=True) for chunk, chain in files]
        while True:
            try:
                await link.chunks.apply(updates, timeout_s=_PATIENCE_S)
                return
            except ThreefsError as error:
                self._world.tell(f"{self._process.name}: a removal failed: {error}")
            await asyncio.sleep(_PAUSE_S)
