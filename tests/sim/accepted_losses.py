"""An administrator accepts a loss: the disks that have served a chain last are gone for good, and a target that was out
goes on alone with the older state that it has.

It comes behind everything else of a run, because no history explains what clients see then. One host is out while a
client writes. Then the disks of all others that one of its chains needs are emptied, and a few things fail beside it.
Where the administrator has not accepted a loss, what was acknowledged is there. Where he has, the host has what it had.
Each chain gets all its members back, and a client reads and writes in all chunks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim import audit, store_faults
from tests.sim.administrator import administer
from tests.sim.audit import State
from tests.sim.faults import Faults, Step
from tests.sim.host_chains import chain_hosts, host_chains, host_chains_to_spare
from tests.sim.workload import Workload
from tests.sim.world import LEASE_S, World
from threefs.errors import InvalidArgument, NotFound, ThreefsError
from threefs.ids import ChainId, ChunkId, TargetId
from threefs.routing import Chain, PublicState, Routing
from threefs.rpc.methods import ACCEPT_LOSS
from threefs.wire import manager_pb2 as pb

_LIMIT_S = 12 * LEASE_S
_LOOK_S = 0.1
_CALL_S = 30.0
_EMPTIED_S = 1.5 * LEASE_S  # within so long all these disks are
_BACK_S = 2 * LEASE_S
_CLIENT = "c1"
_AGED = "aged"
_OLDER_STORES = 0.4
_MOST_CHUNKS = 12
_LENGTH = 100  # of what is written, in grains
#: What may fail beside it, and among whom: nothing that empties or stops storage processes.
_MENU = (
    ("kill", "m"), ("power", "m"), ("pause", "sm"), ("isolate", "sm"), ("part", "sm sm"), ("cut", "sm sm"),
    ("lose", "sm sm"), ("slow", "sm"), ("drag", "s"), ("store", "m"),
)  # fmt: skip
_FAULTS = 6
_FAULT_S = (0.05, 1.5 * LEASE_S)
_FAULTS_BEGIN_S = 3 * LEASE_S


class AcceptedLoss:
    """At the end of a run, when all is well."""

    def __init__(self, world: World, workload: Workload, faults: Faults) -> None:
        self.violations: list[str] = []
        self._world = world
        self._workload = workload
        self._faults = faults
        self._dice = SeededRandom(world.seed, "accepted loss")
        self._host = ""  # that which is out
        self._lost: list[str] = []  # those whose disks are emptied
        self._struck: set[str] = set()  # by what fails beside it
        self._chains: list[ChainId] = []  # that only the first one has then
        self._asked: set[ChainId] = set()  # those whose loss the administrator has accepted, or may have
        self._accepted: set[ChainId] = set()
        self._kept: dict[ChainId, dict[ChunkId, State]] = {}  # what the first one has of them while it is out
        self._calls = 0

    async def run(self) -> None:
        world = self._world
        if not world.healthy() or not self._draw():
            return
        world.tell(f"-- {self._host} is out, then the disks of {self._lost} are lost")
        self._kept = {chain: self._contents(chain) for chain in self._chains}
        world.kill(self._host)
        if not await self._comes(lambda: not host_chains(world.routing(), self._host, PublicState.SERVING)):
            self.violations.append(f"I13: {self._host} is dead, and is taken to serve")
            return
        await self._by_client(self._write(b"lost"))
        steps = self._draw_faults()
        self._struck = {host for step in steps for host in step.hosts}
        faults = world.loop.create_task(self._faults.run(steps))
        self._faults.stores.copy(_AGED, store_faults.MANAGERS)
        self._lose_disks()
        await asyncio.sleep(_EMPTIED_S)
        await self._comes(faults.done, self._accept)
        await self._comes(world.healthy, self._accept)
        await asyncio.sleep(_FAULT_S[1])  # the last fault ends
        await self._accept()  # all serve: what came back without a loss is noted
        if world.healthy() and self._dice.chance(_OLDER_STORES):
            await self._older_store()
        if not await self._comes(world.healthy, self._accept):
            self.violations.append(f"I13: not healthy after the loss of chains {sorted(self._accepted)} was accepted")
        if not self.violations:
            await self._judge()

    def _draw(self) -> bool:
        """Which host is out, and which disks are lost. Some host keeps each chain."""
        routing = self._world.routing()
        assert routing is not None, "somebody is primary"
        hosts = {chain: chain_hosts(routing, chain) for chain in routing.chains}
        self._host = self._world.storage_hosts[self._dice.below(len(self._world.storage_hosts))]
        of_host = [chain for chain in hosts if self._host in hosts[chain] and len(hosts[chain]) > 1]
        if not of_host or set(of_host) - {*host_chains_to_spare(routing, self._host)}:
            return False
        self._lost = sorted(hosts[of_host[self._dice.below(len(of_host))]] - {self._host})
        self._chains = [chain for chain in of_host if hosts[chain] <= {self._host, *self._lost}]
        return all(hosts[chain] - set(self._lost) for chain in hosts)

    def _draw_faults(self) -> list[Step]:
        dice, world, steps = self._dice, self._world, []
        for _ in range(dice.below(_FAULTS)):
            what, among = _MENU[dice.below(len(_MENU))]
            struck: list[str] = []
            for letters in among.split():
                hosts = [h for h in (*world.manager_hosts, *world.storage_hosts) if h[0] in letters and h not in struck]
                struck.append(hosts[dice.below(len(hosts))])
            steps.append(Step(dice.uniform(0.0, _FAULTS_BEGIN_S), what, tuple(struck), dice.uniform(*_FAULT_S)))
        return steps

    def _lose_disks(self) -> None:
        """One after the other, or nearly at once. Each host comes back with an empty disk; that which was out, too."""
        world, within_s = self._world, self._dice.uniform(0.0, _EMPTIED_S)

        def lose(host: str) -> None:
            world.kill(host)
            world.disks[host].wipe()

        for host in self._lost:
            at = self._dice.uniform(0.0, within_s)
            world.loop.call_later(at, lose, host)
            world.loop.call_later(at + self._dice.uniform(0.0, _BACK_S), world.start, host)
        world.loop.call_later(within_s + self._dice.uniform(0.0, _BACK_S), world.start, self._host)

    async def _accept(self) -> None:
        """Where it is needed."""
        routing = self._world.routing()
        if routing is None:
            return
        for chain, own in self._may_be_lost(routing):
            if chain.serving:
                if own in chain.serving and chain.chain_id in self._chains and chain.chain_id not in self._asked:
                    self._kept[chain.chain_id] = self._contents(chain.chain_id)  # it came back before any loss
                continue
            request = pb.AcceptLossRequest(
                chain_id=chain.chain_id, chain_version=chain.version, target_id=own, dry_run=True
            )
            try:
                await self._call(request)
                self._asked.add(chain.chain_id)  # from here on it may be done, whatever he is told
                request.dry_run = False
                await self._call(request)
                self._accepted.add(chain.chain_id)
            except (InvalidArgument, NotFound) as error:
                self._world.tell(f"the loss of chain {chain.chain_id} is not accepted: {error}")

    def _may_be_lost(self, routing: Routing) -> Iterator[tuple[Chain, TargetId]]:
        """The chains that only the host that is out has, and those that a fault has taken from the others beside it.
        With each, a target that has what is left."""
        for chain_id, chain in routing.chains.items():
            hosts = {f"s{routing.targets[member.target_id].node_id}": member for member in chain.members}
            left = [member.target_id for host, member in hosts.items() if host not in self._lost]
            if chain_id in self._chains:
                yield chain, hosts[self._host].target_id
                continue
            last = {host for host, member in hosts.items() if member.state is PublicState.LASTSRV}
            others = {*self._world.manager_hosts, *hosts} - {*self._lost, self._host}  # managers may have heard of none
            if last <= set(self._lost) and self._struck & others:
                yield chain, left[0]

    async def _call(self, request: pb.AcceptLossRequest) -> None:
        self._calls += 1
        await administer(self._world, f"admin.loss.{self._calls}", ACCEPT_LOSS, request)

    async def _older_store(self) -> None:
        """For a while the managers have the store of before, which knows nothing of what was accepted."""
        stores = self._faults.stores
        stores.violations.clear()  # which were told already
        put_right = stores.begin(_AGED, store_faults.MANAGERS)
        if put_right is not None:
            self._world.tell("-- an older store of the managers")
            await asyncio.sleep(self._dice.uniform(*store_faults.LASTS_S))
            put_right()
            self.violations += stores.violations

    async def _comes(self, reached: Callable[[], bool], before: Callable[[], Awaitable[None]] | None = None) -> bool:
        until = self._world.loop.time() + _LIMIT_S + self._world.hold_off_left_s()
        while not reached():
            if self._world.loop.time() > until:
                return False
            if before is not None:
                await before()
            await asyncio.sleep(_LOOK_S)
        return True

    # ---- what there is then

    async def _judge(self) -> None:
        for chain in sorted(self._accepted.intersection(self._chains)):
            found = self._contents(chain)
            for chunk in sorted({*self._kept[chain], *found}):
                before, after = _seen(self._kept[chain].get(chunk)), _seen(found.get(chunk))
                if before != after:
                    self.violations.append(
                        f"{chunk} has {after!r} after a loss was accepted, and {self._host} had kept {before!r}"
                    )
        await self._by_client(self._read(b"lost", but=self._asked))
        await self._by_client(self._write(b"new"))
        await self._by_client(self._read(b"new"))
        self.violations += audit.replicas(self._world) + audit.damage(self._world) + audit.members(self._world)

    def _contents(self, chain: ChainId) -> dict[ChunkId, State]:
        """Of the target of that host."""
        targets = [target for target in self._world.storages[self._host].targets if target.chain.chain_id == chain]
        return {chunk: state for target in targets for chunk, state in audit.contents(self._world, target).items()}

    async def _by_client(self, work: Coroutine[Any, Any, None]) -> None:
        await self._world.processes[_CLIENT].start(work)

    async def _write(self, what: bytes) -> None:
        link = self._workload.links[_CLIENT]
        for number in self._numbers():
            try:
                await link.chunks.apply([self._workload.update(number, self._payload(number, what))], timeout_s=_CALL_S)
            except ThreefsError as error:
                self.violations.append(f"chunk {number} cannot be written around a loss that is accepted: {error}")

    async def _read(self, written: bytes, *, but: Collection[ChainId] = ()) -> None:
        """All chunks; those of these chains may have anything."""
        for number in self._numbers():
            expected = self._payload(number, written)
            try:
                seen = await self._workload.content(_CLIENT, number, len(expected))
            except ThreefsError as error:
                self.violations.append(f"chunk {number} cannot be read after a loss was accepted: {error}")
                continue
            if seen != expected and self._workload.update(number, b"").chain not in but:
                self.violations.append(f"chunk {number} has {seen!r} after others were lost, not {expected!r}")

    def _numbers(self) -> list[int]:
        return self._workload.numbers[:_MOST_CHUNKS]

    def _payload(self, number: int, what: bytes) -> bytes:
        return (b"<%d %s>" % (number, what) * _LENGTH)[:_LENGTH]


def _seen(state: State | None) -> bytes | None:
    """As clients see it: what was removed may be forgotten."""
    return None if state is None or state[1] else state[4]
