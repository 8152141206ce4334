"""Members of chains that move while there are faults: drawn apart, so that they change nothing else of a seed.

AT join HOST             a storage process that was in no plan joins, and targets move to it
AT drain HOST FOR        its targets move to others; after the time it may keep what it has
AT level                 targets move until all processes have equally many
AT copies x3             each chain gets three copies
AT table                 each disk gets a target of further chains, which new files take then

Targets that an administrator holds are drawn apart from those, and may be in any seed (`run_shape`):

AT offline HOST FOR      its targets are taken out of service for that time
AT rotate HOST           chains whose head it is get another one
"""

import asyncio
from collections.abc import Callable
from typing import Any

from threefs_manager.store.restore_inquiry import Inquiry
from threefs_storage.engine import record_store

from tests.harness.seeded_random import SeededRandom
from tests.sim.administrator import administer
from tests.sim.world import LEASE_S, World
from threefs.errors import InvalidArgument, NotFound
from threefs.routing import EMPTY, Hold, Routing
from threefs.rpc.methods import (
    ACCEPT_UNHEARD,
    ADD_NODES,
    CREATE_TABLE,
    HOLD_TARGETS,
    REBALANCE,
    SET_DEFAULT_TABLE,
    SET_DRAINING,
    SET_REPLICAS,
    Method,
    Rep,
    Req,
)
from threefs.wire import manager_pb2 as pb

HOLDS = ("offline", "rotate")
KINDS = ("join", "drain", "level", "copies", "table", *HOLDS)
_LASTS_S = (2.0, 8.0)
_OUT_S = (0.5, 6.0)
_PAUSE_S = (0.5, 4.0)
_TABLES = 0.3
_INQUIRY_S = 8 * LEASE_S
_ENDS_S = 2 * LEASE_S  # until a node that is in no plan has heard of it
_CHAIN_NOTE = record_store._CHAIN_KEY


class MovingMembers:
    """What an administrator asks the managers for, until they have done it."""

    def __init__(self, world: World) -> None:
        self.refused = 0  # drains that would leave too few processes
        self._world = world
        self._dice = SeededRandom(world.seed, "administrator")
        self._asked = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._holding: set[asyncio.Task[None]] = set()  # those of them that hold targets, or let them go

    def begin(self, kind: str, *hosts: str) -> Callable[[], Any]:
        """How to take it back."""
        if kind == "join":
            return self._join(hosts[0])
        if kind == "copies":
            self._ask(self._copies(int(hosts[0][1:])))
            return lambda: None
        if kind == "table":
            self._ask(self._table())
            return lambda: None
        if kind == "level":
            self._ask(self._level())
            return lambda: None
        if kind == "rotate":
            self._ask_to_hold(self._rotate(hosts[0]))
            return lambda: None
        if kind == "offline":
            targets = self._targets(hosts[0])
            asked = self._ask_to_hold(self._hold(targets, pb.HOLD_OFFLINE))
            return lambda: self._ask_to_hold(self._release(targets, asked))
        self._ask(self._drain(hosts[0], True))
        return lambda: self._ask(self._undrain(hosts[0]))

    async def settle(self) -> None:
        """Wait until the managers have taken all in, and no target is held. A hold may be left: a call that was given
        up took effect late, or the managers' store was restored."""
        while self._calls:
            await asyncio.wait(self._calls)
        while self._world.primary() is None:
            await asyncio.sleep(0.1)
        await self._give_up_stores_without_chains()
        await self._hold(self._held(), pb.HOLD_NONE)

    def join_again(self) -> None:
        """The managers' store was restored: it may lack the storage processes that have joined since."""
        world = self._world
        joined = [host for host in world.storage_hosts if host in world.spare_hosts]

        async def join() -> None:
            await self._call(ADD_NODES, _plan(joined))
            for host in joined:
                if host not in world.fabric.down:
                    world.start(host)
            until = world.loop.time() + _ENDS_S
            while world.loop.time() < until:  # one may hear only now that it was not known, and end
                for host in world.gave_up.intersection(joined) - world.fabric.down:
                    world.start(host)
                await asyncio.sleep(0.1)

        if joined:
            self._ask(join())

    async def _give_up_stores_without_chains(self) -> None:
        """A target that was planned when the backup was made, and whose store was made later or never, is awaited until
        an administrator says that it has nothing."""
        world = self._world
        until = world.loop.time() + _INQUIRY_S
        while (inquiry := world.inquiry()) is not None and world.loop.time() < until:
            if world.loop.time() > until - _INQUIRY_S / 2 and (nodes := self._without_chains(inquiry)):
                try:
                    await self._call(ACCEPT_UNHEARD, pb.AcceptUnheardRequest(nodes=nodes))
                except InvalidArgument as error:
                    world.tell(f"nodes {nodes} are not given up: {error}")
            await asyncio.sleep(0.1)

    def _without_chains(self, inquiry: Inquiry) -> list[int]:
        """Nodes that run, and of which no awaited target has ever kept a version of its chain."""
        awaited = {target: inquiry._targets[target].node_id for target in inquiry._awaited}
        keeping = {node for target, node in awaited.items() if self._keeps_chain(f"s{node}", target)}
        return [node for node in inquiry.awaited_nodes if node not in keeping and f"s{node}" in self._world.storages]

    def _keeps_chain(self, host: str, target: int) -> bool:
        tables = self._world.disks[host].tables
        return any(_CHAIN_NOTE in rows.values for path, rows in tables.items() if f"target-{target}" in path.parts)

    @property
    def holds_any(self) -> bool:
        """Whether a target is held, or may be at any moment: its chain has one copy less then."""
        return bool(self._holding or self._held())

    def _held(self) -> list[int]:
        return sorted(target.target_id for target in self._routing().targets.values() if target.hold is not Hold.NONE)

    async def _call(self, method: Method[Req, Rep], request: Req) -> Rep:
        self._asked += 1
        return await administer(self._world, f"admin.{self._asked}", method, request)

    def _ask(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def _ask_to_hold(self, work: Any) -> asyncio.Task[None]:
        task = self._ask(work)
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)
        return task

    def _join(self, host: str) -> Callable[[], Any]:
        world = self._world
        if host in world.storage_hosts:
            return lambda: None

        async def join() -> None:
            await self._call(ADD_NODES, _plan([host]))
            world.storage_hosts.append(host)
            if host not in world.fabric.down:
                world.start(host)
            await self._level()

        self._ask(join())
        return lambda: None

    async def _level(self) -> None:
        await self._call(REBALANCE, pb.RebalanceRequest())

    async def _drain(self, host: str, draining: bool) -> None:
        request = pb.SetDrainingRequest(node_id=int(host[1:]), draining=draining)
        try:
            await self._call(SET_DRAINING, request)
        except (InvalidArgument, NotFound) as error:
            self.refused += 1
            self._world.tell(f"{host} is not drained: {error}")

    async def _copies(self, replicas: int) -> None:
        try:
            await self._call(SET_REPLICAS, pb.SetReplicasRequest(table_id=1, replicas=replicas))
        except (InvalidArgument, NotFound) as error:  # NotFound: the store of the managers is empty
            self.refused += 1
            self._world.tell(f"no {replicas} copies: {error}")

    async def _table(self) -> None:
        call_id = self._dice.token(16)
        try:
            made = await self._call(
                CREATE_TABLE, pb.CreateTableRequest(replicas=2, targets_per_disk=2, call_id=call_id)
            )
            await self._call(SET_DEFAULT_TABLE, pb.SetDefaultTableRequest(table_id=made.table.table_id))
        except (InvalidArgument, NotFound) as error:
            self.refused += 1
            self._world.tell(f"no further table: {error}")

    def _targets(self, host: str) -> list[int]:
        """The members of chains on that host, as the primary knows them."""
        routing = self._routing()
        members = [m.target_id for chain in routing.chains.values() for m in chain.members]
        return sorted(t for t in members if routing.targets[t].node_id == int(host[1:]))

    def _routing(self) -> Routing:
        primary = self._world.primary()
        return EMPTY if primary is None else self._world.managers[primary]._publisher.routing

    async def _rotate(self, host: str) -> None:
        heads = {chain.head for chain in self._routing().chains.values()}
        for target in self._targets(host):
            if target in heads:
                await self._hold([target], pb.HOLD_ROTATE)

    async def _hold(self, targets: list[int], hold: "pb.Hold") -> None:
        for target in targets:
            try:
                await self._call(HOLD_TARGETS, pb.HoldTargetsRequest(targets=[target], hold=hold))
            except (InvalidArgument, NotFound) as error:
                self.refused += 1
                self._world.tell(f"target {target} is not held: {error}")

    async def _release(self, targets: list[int], asked: asyncio.Task[None]) -> None:
        await asyncio.wait([asked])
        await self._hold(targets, pb.HOLD_NONE)

    async def _undrain(self, host: str) -> None:
        await self._drain(host, False)
        await self._level()


def _plan(hosts: list[str]) -> pb.AddNodesRequest:
    return pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=int(host[1:])) for host in hosts])


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, tuple[str, ...], float]]:
    """Moment, kind, hosts and time of each."""
    steps: list[tuple[float, str, tuple[str, ...], float]] = []
    spares = list(world.spare_hosts)
    at = dice.uniform(0.0, 1.0)
    while at < length_s:
        drawn = dice.below(5)
        if drawn == 0 and spares:
            steps.append((at, "join", (spares.pop(0),), 0.0))
        elif drawn == 3:
            steps.append((at, "level", (), 0.0))
        elif drawn == 4:
            steps.append((at, "copies", (f"x{2 + dice.below(3)}",), 0.0))
        else:
            host = world.storage_hosts[dice.below(len(world.storage_hosts))]
            steps.append((at, "drain", (host,), dice.uniform(*_LASTS_S)))
        at += dice.uniform(*_PAUSE_S)
    return steps


def draw_tables(dice: SeededRandom, length_s: float) -> list[tuple[float, str, tuple[str, ...], float]]:
    """As `draw`: one, in some runs."""
    return [(dice.uniform(0.0, length_s), "table", (), 0.0)] if dice.chance(_TABLES) else []


def draw_holds(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, tuple[str, ...], float]]:
    """Moment, kind, host and time of each target that is held."""
    steps: list[tuple[float, str, tuple[str, ...], float]] = []
    hosts = [*world.storage_hosts, *world.spare_hosts]
    at = dice.uniform(0.0, 2.0)
    while at < length_s:
        kind, host = HOLDS[dice.below(len(HOLDS))], hosts[dice.below(len(hosts))]
        steps.append((at, kind, (host,), dice.uniform(*_OUT_S) if kind == "offline" else 0.0))
        at += dice.uniform(*_PAUSE_S)
    return steps
