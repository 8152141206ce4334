"""A member of a chain gets a new disk, which is full, or fills up, before all is copied to it, and stays so until the
faults end: writes go on.

They are made by a client of its own, in the calm behind all other faults: only there it is known how long they may
take.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process
from tests.sim.emptied_disks import EmptiedDisks
from tests.sim.host_chains import chain_hosts, host_chains, host_chains_to_spare
from tests.sim.tight_disks import TightDisks
from tests.sim.workload import CHUNK_BYTES, FIRST_INODE
from tests.sim.world import LEASE_S, World
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import ThreefsError
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.routing import PublicState
from threefs.wire import storage_pb2 as pb

_CALM_S = 8 * LEASE_S
_AWAY_S = 1.0  # it misses some writes
_MOST_WRITE_S = 4 * LEASE_S
_ROUNDS = 4
_PAUSE_S = 0.5
_LOOK_S = 0.005
_OPENS_BYTES = 256 << 10  # with less a process does not start
MOST_S = 100.0
_FROM = "x3"
_INODE = FIRST_INODE + 1_000_000  # of its chunks, one in each chain


class FullSyncing:
    def __init__(self, world: World, disks: TightDisks, empties: EmptiedDisks) -> None:
        self.violations: list[str] = []
        self._world = world
        self._disks = disks
        self._empties = empties
        self._dice = SeededRandom(world.seed, "brim")
        self._work: asyncio.Task[None] | None = None

    def begin(self, host: str, is_calm: Callable[[], bool]) -> Callable[[], Any] | None:
        """How to end it; it ends by itself, too."""
        if self._work is not None:
            return None
        undo: list[Callable[[], None]] = []
        self._work = self._world.loop.create_task(self._run(host, is_calm, undo))
        return lambda: [each() for each in undo]

    async def ended(self) -> None:
        if self._work is not None:
            await self._work

    async def _run(self, host: str, is_calm: Callable[[], bool], undo: list[Callable[[], None]]) -> None:
        world = self._world
        until = world.loop.time() + _CALM_S
        while not (world.healthy() and is_calm()):
            if world.loop.time() > until:
                world.tell(f"the disk of {host} is not filled: something else is wrong")
                return
            await asyncio.sleep(_LOOK_S)
        if not self._empties.spare():
            return
        world.manager_kv.unknown = 0.0  # nothing is wrong: each lost answer may keep a manager from leading for T
        world.kill(host)
        self._empties.empty(host)  # else blocks that are free have room for all that it lacks
        fills_later = self._dice.chance(0.5)
        if not fills_later:
            undo.append(self._disks.begin(host, _OPENS_BYTES))
        await asyncio.sleep(_AWAY_S)
        world.start(host)
        if fills_later:
            await self._is_syncing(host)
            undo.append(self._disks.begin(host, left_bytes=0))
        world.tell(f"-- the disk of {host} is full, and its targets are to be brought up to date")
        process = Process(world.loop, "brim", _FROM)
        try:
            await process.start(self._write(host))
        finally:
            process.kill()

    async def _is_syncing(self, host: str) -> None:
        until = self._world.loop.time() + LEASE_S
        while not host_chains(self._world.routing(), host, PublicState.SYNCING) and self._world.loop.time() < until:
            await asyncio.sleep(_LOOK_S)

    async def _write(self, host: str) -> None:
        link = await self._world.client(_FROM)
        for number in range(_ROUNDS):
            for chain in self._chains_with_room(host):
                chunk = ChunkId(InodeId(_INODE + chain), 0)
                content = f"{number}".encode() * 1000
                update = ChunkUpdate(chain, chunk, pb.WRITE, CHUNK_BYTES, 0, len(content), content)
                began = self._world.loop.time()
                try:
                    await link.chunks.apply([update], timeout_s=_MOST_WRITE_S)
                except ThreefsError as error:
                    if self._was_cut(chain, began):
                        continue
                    self.violations.append(
                        f"writes to chain {chain} do not go on while the disk of {host} is full, before all is copied "
                        f"to it: {error}"
                    )
                    return
            await asyncio.sleep(_PAUSE_S)

    def _chains_with_room(self, host: str) -> list[ChainId]:
        """Those with room at all other members: disks that are small are so until the faults end, and longer."""
        routing = self._world.routing()
        chains = host_chains_to_spare(routing, host)
        return [chain for chain in chains if not (chain_hosts(routing, chain) - {host}) & self._disks.small_hosts()]

    def _was_cut(self, chain: ChainId, since: float) -> bool:
        """Whether a link has failed since then that writes to the chain need: it may outlast the calm."""
        needed = {_FROM, *self._world.manager_hosts, *chain_hosts(self._world.routing(), chain)}
        return any(needed.issuperset(way) for way in self._world.fabric.failed_since(since))
