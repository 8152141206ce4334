"""A whole cluster on one loop: the real code of all four roles over simulated clocks, networks, disks and stores."""

import asyncio
import math
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from threefs_client import context as client_link
from threefs_client.context import ClientContext
from threefs_client.options import Options
from threefs_manager.election import LEASES_PER_T, Election
from threefs_manager.service import Manager
from threefs_manager.store.restore_inquiry import Inquiry
from threefs_meta.node import MetaNode
from threefs_meta.settings import Settings as MetaSettings
from threefs_storage.health.disk_stall import STALL_S
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings as StorageSettings

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated import record_table
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.loop import PROCESS, Process, SimLoop
from tests.sim import local_store
from tests.sim.host_slots import SlotsOfProcess
from tests.sim.kv import SimKv
from tests.sim.net import Fabric, SimNet
from threefs import background
from threefs.cluster.manager_client import Caller, ManagerClient
from threefs.env.host_slots import OwnSlots
from threefs.env.net import Net
from threefs.errors import NotAuthorised, Overloaded, ThreefsError
from threefs.routing import PublicState, Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import INIT, REGISTER, Method, Rep, Req
from threefs.rpc.server import Server
from threefs.wire import manager_pb2 as pb

LEASE_S = 2.0  # T
SCRUB_S = 1.5
PORT = 7000
#: Of the wall clocks of managers, which agree: numbers that two restores make from them are of different minutes.
WALL_PACE = 240
_START_S = 60.0
_MOST_TRIES = 60  # to get in, while somebody pretends to be a manager


@dataclass(frozen=True, slots=True)
class Size:
    managers: int = 2
    storage: int = 4
    spares: int = 0  # more storage processes, which are in no plan at first
    replicas: int = 3
    targets_per_disk: int = 3
    metas: int = 1
    clients: int = 3
    drift: float = 0.01  # clocks run so much fast or slow
    attempt_s: float = 2.0  # how long a client waits for an answer before it asks again, or elsewhere
    net_delay_s: tuple[float, float] = (0.0001, 0.001)
    disk_delay_s: tuple[float, float] = (0.00005, 0.0005)
    cold: float = 0.1  # the share of reads whose bytes are not in memory
    stall_s: float = STALL_S  # a storage process whose disk takes nothing for so long falls silent
    tuned: bool = False  # storage processes take from the configuration of the cluster what it may change
    scrub_s: float = SCRUB_S  # from one pass of the scrubber to the next
    doubt: float = 0.0  # the share of commits at the stores of whose end nobody hears
    manager_doubt: float = 0.0  # the same for the store of the managers alone, once there is load ...
    late: float = 0.0  # ... and the share of these that reach it late
    calls: int = 4096  # that a storage or meta process takes at once on one connection ...
    inflight_bytes: int = 256 << 20  # ... and of them so much payload
    connections: int = 4096  # that a storage or meta process takes ...
    process_bytes: int = 1 << 30  # ... and of all of them together so much payload, ...
    calls_bytes: int = 256 << 20  # ... so much of requests, ...
    held_bytes: int = 256 << 20  # ... and so much of answers that wait for a grant
    receive_senders: int = 32  # storage processes that may send to all clients together at a time ...
    receive_bytes: int = 128 << 20  # ... and so much
    key: str = ""  # of the cluster; everybody proves to know it
    local_stores: bool = False  # of the one manager and the one meta service, on disks of their own
    deferred_bytes: int = 0  # the largest change that is kept in the record store; 0: none is
    ballast_bytes: int = 0  # of a disk, that are released when it is full
    full_found_late: float = 0.0  # the share of writes to tables of which only the flush finds that the disk is full
    inline_bytes: int = 0  # the largest content without a block
    deferred_changes: int = 128  # of a chunk, before it is rewritten
    fold_s: float = 1.0  # from one visit to changed chunks to the next
    lockers: int = 0  # clients that count in one file, one at a time, under its lock
    age_min: int = 0  # logical time of the chains when the load begins: versions and stamps are made of it


class Heard:
    """The managers, as threefs.managers.Caller; and what was asked of them."""

    def __init__(self, managers: Caller, registrations: list[pb.RegisterRequest]) -> None:
        self._managers = managers
        self._registrations = registrations

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        if method is REGISTER:
            registration = pb.RegisterRequest()
            registration.MergeFromString(request.SerializeToString())
            if registration not in self._registrations[-1:]:
                self._registrations.append(registration)
        return await self._managers.call(method, request, timeout_s=timeout_s)


class World:
    """Hosts m1.., s1.., t1.. (meta), c1... Each has one process, which can be started again when it has ended."""

    def __init__(self, seed: object, size: Size, directory: Path) -> None:
        self.seed = seed
        self.size = size
        self.loop = SimLoop()
        self.dice = SeededRandom(seed, "world")
        self.fabric = Fabric(self.loop, SeededRandom(seed, "net"))
        self.manager_kv = SimKv(
            self.loop, SeededRandom(seed, "manager-kv"), late_dice=SeededRandom(seed, "late commits")
        )
        self.meta_kv = SimKv(self.loop, SeededRandom(seed, "meta-kv"))
        self.manager_kv.unknown = self.meta_kv.unknown = self.meta_kv.conflicts = size.doubt
        self.manager_kv.late = size.late
        self.processes: dict[str, Process] = {}
        self.disks: dict[str, SimDisk] = {}
        self.store_disks: dict[str, SimDisk] = {}  # of managers and meta services
        self.managers: dict[str, Manager] = {}
        self.manager_servers: dict[str, Server] = {}
        self.storages: dict[str, StorageNode] = {}
        self._mains: dict[str, asyncio.Task[None]] = {}
        self.gave_up: set[str] = set()  # hosts whose process has ended by itself, and does not run again
        self.metas: dict[str, MetaNode] = {}
        self.restores = 0  # of the metadata, from a backup
        self.trace: list[str] = []
        self.rotted = False  # something has, while its chain was not whole
        self.is_full: Callable[[], bool] = lambda: False  # whether all disks of some chain have no room now
        #: Told of each routing that a manager publishes, and of the one that a term begins with: some are the newest
        #: for a few milliseconds.
        self.on_routing: Callable[[Routing], None] = lambda routing: None
        self.full_at = -math.inf  # when all disks of some chain last had no room, so that writes may have been refused
        self.deaths: list[str] = []  # processes that ended by themselves, and why
        self.reached: Counter[str] = Counter()  # bounds of storage and meta processes that refused something
        self.receive_slots = OwnSlots(size.receive_senders)  # as if all clients were on one host
        self.on_hold: dict[str, Callable[[], None]] = {}  # what is to happen when that host has its lock
        #: Told of everything that the story of a storage process tells: (host, what, chunk, facts).
        self.listeners: list[Callable[[str, str, Any, dict[str, Any]], None]] = []
        #: What a client's process does. Without it, clients are begun by whoever wants some, and stay dead when killed.
        self.client_main: Callable[[Process], Coroutine[Any, Any, None]] | None = None
        self._directory = directory
        self._incarnations: dict[str, int] = {}
        self._belongs: dict[str, str] = {}  # what a manager has noted of whose store it has
        self.manager_hosts = [f"m{n}" for n in range(1, size.managers + 1)]
        self.storage_hosts = [f"s{n}" for n in range(1, size.storage + 1)]
        self.meta_hosts = [f"t{n}" for n in range(1, size.metas + 1)]
        self.client_hosts = [f"c{n}" for n in range(1, size.clients + 1)]
        self.file_hosts = ["f1"]
        self.locker_hosts = [f"f{n}" for n in range(2, size.lockers + 2)]
        self.registered: dict[str, list[pb.RegisterRequest]] = {}  # what the processes of a host have asked for
        self.manager_addresses = [f"{host}:{PORT}" for host in self.manager_hosts]
        self.spare_hosts = [f"s{n}" for n in range(size.storage + 1, size.storage + size.spares + 1)]
        self.gone: set[str] = set()  # those that have died for good
        for host in [*self.storage_hosts, *self.spare_hosts]:
            self.disks[host] = SimDisk(self.loop, SeededRandom(seed, "disk", host), name=host)
            self.disks[host].full_found_late = size.full_found_late
            self.disks[host].delay_s = size.disk_delay_s
            self.disks[host].cold = size.cold
        for host in ("m1", "t1") if size.local_stores else ():
            self.store_disks[host] = SimDisk(self.loop, SeededRandom(seed, "store", host), name=host)
            self.store_disks[host].delay_s = size.disk_delay_s
        self.fabric.delay_s = size.net_delay_s

    @property
    def hosts(self) -> list[str]:
        return [
            *self.manager_hosts,
            *self.storage_hosts,
            *self.meta_hosts,
            *self.client_hosts,
            *self.file_hosts,
            *self.locker_hosts,
        ]

    def held(self, host: str) -> None:
        """That host has the lock that it wanted, and is about to write."""
        if host in self.on_hold:
            self.on_hold[host]()

    def tell(self, line: str) -> None:
        line = line.replace(str(self._directory), "")  # which is another one in each run
        self.trace.append(f"{self.loop.time() - 1000.0:9.4f} {line}")

    def take_disk_away(self, host: str) -> Callable[[], None]:
        """An empty mount point is in the place of the disk of a storage process that does not run. Returns how to put
        the disk back, with all that it had."""
        disk, directory, away = self.disks[host], self._directory / host, self._directory / f"{host}.away"
        image = disk.copied()
        disk.wipe()
        directory.rename(away)

        def put_back() -> None:
            disk.restore(image)
            shutil.rmtree(directory, ignore_errors=True)
            away.rename(directory)

        return put_back

    # ---- processes

    def start(self, host: str) -> None:
        """Start the process of a host, if it does not run."""
        before = self.processes.get(host)
        if (before is not None and before.alive) or (host in self.client_hosts and self.client_main is None):
            return
        if host in self.gone:
            return
        self.gave_up.discard(host)
        number = self._incarnations[host] = self._incarnations.get(host, 0) + 1
        process = self.processes[host] = Process(self.loop, f"{host}.{number}", host)
        self.tell(f"{host} starts")
        random = SeededRandom(self.seed, "process", process.name)
        clock = SimClock(self.loop, 1.0 + random.uniform(-1, 1) * self.size.drift, random.uniform(0, 1e5), process)
        if host in self.client_hosts:
            assert self.client_main is not None
            process.start(self._watched(process, self.client_main(process)))
            return
        run = {"m": self._manager, "s": self._storage, "t": self._meta}[host[0]]
        self._mains[host] = process.start(self._watched(process, run(process, clock, random)))

    async def _watched(self, process: Process, main: Coroutine[Any, Any, None]) -> None:
        """A process that ends with an exception is dead, and its host shall be told about in the end."""

        def died(name: str, error: BaseException | None) -> None:
            told = self.tell if isinstance(error, ThreefsError) else self.deaths.append
            told(f"{process.name}: the task {name!r} has died of {error!r}")
            self.gave_up.add(process.host)
            self.loop.call_soon(process.kill)

        background.on_death(died)
        try:
            await main
        except asyncio.CancelledError:
            raise
        except ThreefsError as error:
            self.tell(f"{process.name} gives up: {error}")
            self.gave_up.add(process.host)
            self.loop.call_soon(process.kill)
        except BaseException as error:
            self.deaths.append(f"{process.name} died of {error!r}")
            self.tell(self.deaths[-1])
            self.loop.call_soon(process.kill)

    def stop(self, host: str) -> None:
        """SIGTERM, for a storage process."""
        self._mains[host].cancel()

    def kill(self, host: str) -> None:
        self.tell(f"{host} is killed")
        self.processes[host].kill()
        self.managers.pop(host, None)
        self.manager_servers.pop(host, None)
        self.storages.pop(host, None)
        self.metas.pop(host, None)

    def cut_power(self, host: str) -> None:
        """The process dies, nobody is told, and what was not synced is lost."""
        self.tell(f"{host} loses power")
        self.fabric.down.add(host)  # first: so nothing is said when the process ends
        self.processes[host].kill()
        self.managers.pop(host, None)
        self.manager_servers.pop(host, None)
        self.storages.pop(host, None)
        self.metas.pop(host, None)
        self.fabric.power_off(host)
        for disks in (self.disks, self.store_disks):
            if host in disks:
                disks[host].cut_power()

    def was_full_since(self, began: float) -> bool:
        """Whether work that began then may have found a chain without room. Its members tell of their room once in a
        while, so it may seem full for some time longer."""
        return self.is_full() or self.full_at >= began - LEASE_S

    def restore_power(self, host: str) -> None:
        self.fabric.power_on(host)
        self.start(host)

    def _net(self, process: Process) -> Net:
        return SimNet(self.fabric, process)

    def callers(self, peers: ConnectionPool) -> Caller:
        return ManagerClient.over_frames(peers, self.manager_addresses)

    def _line(self, process: Process, clock: SimClock) -> Callable[[ConnectionPool], Caller]:
        """The way of a process to the managers. Its registrations are kept: they may be heard again, much later."""

        def callers(peers: ConnectionPool) -> Caller:
            return Heard(self.callers(peers), self.registered.setdefault(process.host, []))

        return callers

    async def _manager(self, process: Process, clock: SimClock, random: SeededRandom) -> None:
        clock.wall_pace = WALL_PACE
        holder = random.token(16).hex()
        server = Server(self._net(process), Identity("", holder, self.size.key, "threefs-manager"), clock=clock)
        local = self.size.local_stores
        store = await local_store.open_engine(self.store_disks[process.host], clock) if local else self.manager_kv
        length_s = LEASE_S / LEASES_PER_T
        election = Election(store, holder, length_s=length_s, exclusive=local, clock=clock, random=random)

        def join(cluster_id: str) -> None:
            self._belongs[process.host] = cluster_id
            server.join(cluster_id)

        manager = Manager(
            store,
            election,
            lease_s=LEASE_S,
            clock=clock,
            random=random,
            net=self._net(process),
            expected_cluster_id=self._belongs.get(process.host, ""),
            on_cluster=join,
        )
        publisher = manager._publisher
        wake = publisher._wake

        def published() -> None:
            wake()
            if not publisher._ended:  # else it may be old
                self.on_routing(publisher.routing)

        publisher._wake = published  # type: ignore[method-assign]
        manager.bind(server)
        manager.bind_presence(server)
        self.managers[process.host], self.manager_servers[process.host] = manager, server
        await server.start(process.host, PORT)
        await manager.run()

    async def _storage(self, process: Process, clock: SimClock, random: SeededRandom) -> None:
        disk = self.disks[process.host]
        directory = self._directory / process.host
        directory.mkdir(exist_ok=True)
        settings = StorageSettings(
            node_id=int(process.host[1:]),
            data_dir=directory,
            manager=",".join(self.manager_addresses),
            token=self.size.key,
            host=process.host,
            port=PORT,
            ballast_bytes=self.size.ballast_bytes,
            deferred_bytes=self.size.deferred_bytes,
            inline_bytes=self.size.inline_bytes,
            deferred_changes=self.size.deferred_changes,
            fold_interval_s=self.size.fold_s,
            scrub_bytes_per_s=64 << 20,
            scrub_interval_s=self.size.scrub_s,
        )
        if self.size.tuned:
            settings = replace(settings, deferred_bytes=None, inline_bytes=None, deferred_changes=None)
        node = StorageNode(
            settings,
            net=self._net(process),
            disk=disk,
            managers=self._line(process, clock),
            clock=clock,
            random=random,
            open_table=lambda path: record_table.open_table(disk, path),
            limits=self._limits(Limits()),
            stall_s=self.size.stall_s,
        )
        self._count_refusals(node._server)
        self._listen_to(process.host, node)
        self.storages[process.host] = node
        try:
            await node.start()
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as a service does: a start is not waited for
            await node.stop()
            raise

    def _limits(self, limits: Limits) -> Limits:
        size = self.size
        return replace(
            limits,
            calls=size.calls,
            inflight_bytes=size.inflight_bytes,
            connections=size.connections,
            process_bytes=size.process_bytes,
            calls_bytes=size.calls_bytes,
            held_bytes=size.held_bytes,
        )

    def _count_refusals(self, server: Server, of: str = "") -> None:
        def counted(name: str) -> None:
            check = getattr(server, name)

            def checked(*arguments: Any, **more: Any) -> None:
                try:
                    check(*arguments, **more)
                except Overloaded:
                    self.reached[of + name] += 1
                    raise

            setattr(server, name, checked)

        counted("make_room")
        counted("check_calls")

    def _listen_to(self, host: str, node: StorageNode) -> None:
        story = node.storage.trace
        told = story.add

        def tell(key: Any, what: str, **facts: Any) -> None:
            told(key, what, **facts)
            for listener in self.listeners:
                listener(host, what, key, facts)

        story.add = tell  # type: ignore[method-assign]

    async def _meta(self, process: Process, clock: SimClock, random: SeededRandom) -> None:
        directory = self._directory / process.host
        directory.mkdir(exist_ok=True)
        settings = MetaSettings(
            data_dir=directory,
            manager=",".join(self.manager_addresses),
            token=self.size.key,
            host=process.host,
            port=PORT,
        )
        local = self.size.local_stores
        store = await local_store.open_engine(self.store_disks[process.host], clock) if local else self.meta_kv
        node = MetaNode(
            settings,
            net=self._net(process),
            engine=store,
            managers=self._line(process, clock),
            clock=clock,
            random=random,
            limits=self._limits(Limits()),
        )
        self._count_refusals(node._server, "meta ")
        self.metas[process.host] = node
        await node.start()
        await asyncio.Event().wait()

    # ---- what tests do

    async def begin(self) -> None:
        """Start everything, and wait until all chains can be used."""
        for host in self.manager_hosts:
            self.start(host)
        await self._init()
        for host in [*self.storage_hosts, *self.meta_hosts]:
            self.start(host)
        if not await self._started_within(_START_S):  # the store leaves so much unanswered that nobody is primary
            assert self.manager_kv.unknown, "I13: the cluster starts"
            doubt, self.manager_kv.unknown = self.manager_kv.unknown, 0.0
            assert await self._started_within(_START_S), "I13: the cluster starts"
            self.manager_kv.unknown = doubt
        for node in self.storages.values():
            for target in node.targets:
                target.logical_time.observe(self.size.age_min)

    async def _started_within(self, seconds: float) -> bool:
        end = self.loop.time() + seconds
        while not (len(self.storages) == self.size.storage and self.healthy()):
            if self.loop.time() >= end:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _init(self) -> None:
        process = Process(self.loop, "admin", "admin")
        plan = pb.InitRequest(
            storage=[pb.PlannedNode(node_id=n) for n in range(1, self.size.storage + 1)],
            replicas=self.size.replicas,
            targets_per_disk=self.size.targets_per_disk,
        )

        async def init() -> None:
            peers = ConnectionPool(
                self._net(process), Identity("", "0" * 32, self.size.key, "admin"), clock=SimClock(self.loop)
            )
            managers = self.callers(peers)
            while True:
                try:
                    await managers.call(INIT, plan, timeout_s=5.0)
                    return
                except ThreefsError as error:
                    self.tell(f"no cluster yet: {error}")
                await asyncio.sleep(0.1)

        await process.start(init())

    async def client(self, host: str) -> ClientContext:
        """To be awaited in a process of that host."""
        process = PROCESS.get()
        assert process is not None
        random = SeededRandom(self.seed, "process", process.name)
        clock = SimClock(self.loop, 1.0 + random.uniform(-1, 1) * self.size.drift, random.uniform(0, 1e5), process)
        options = Options(
            timeout_s=60.0,
            connect_timeout_s=60.0,
            attempt_timeout_s=self.size.attempt_s,
            noatime=True,
            token=self.size.key,
            receive_senders=self.size.receive_senders,
            receive_bytes=self.size.receive_bytes,
        )
        slots = SlotsOfProcess(self.receive_slots, process)
        addresses = tuple(self.manager_addresses)
        for _ in range(_MOST_TRIES):
            try:
                return await client_link.connect(
                    addresses,
                    options,
                    net=self._net(process),
                    clock=clock,
                    random=random,
                    slots=slots,
                    name=process.name,
                )
            except NotAuthorised as error:  # somebody pretends to be a manager
                self.tell(f"{host} is not let in: {error}")
                await asyncio.sleep(0.5)
        raise AssertionError(f"{host} finds nobody who knows the key")

    def metadata(self) -> SimKv:
        """All of it, to be looked at."""
        if self.size.local_stores:
            self.meta_kv.mount(self.store_disks["t1"].tables[local_store.PATH].values)
        return self.meta_kv

    def routing(self) -> Routing | None:
        """As the primary of the newest epoch knows it."""
        primary = self.primary()
        return self.managers[primary]._publisher.routing if primary is not None else None

    def primary(self) -> str | None:
        """The host of the manager with the newest epoch, of those that run."""
        found: list[tuple[int, str]] = []
        for host, manager in self.managers.items():
            epoch = manager._election.epoch
            if self.processes[host].running and manager.leading.is_set() and epoch is not None:
                found.append((epoch.number, host))
        return max(found)[1] if found else None

    def inquiry(self) -> Inquiry | None:
        """What the primary waits for before it serves from a store that was restored from a backup."""
        primary = self.primary()
        return self.managers[primary]._inquiry if primary is not None else None

    def hold_off_left_s(self) -> float:
        """How long a target may still stay out, because a link had failed."""
        primary = self.primary()
        controller = self.managers[primary]._controller if primary is not None else None
        return max(0.0, controller.links.hold_off_left_s) if controller is not None else 0.0

    def healthy(self) -> bool:
        """Every target serves, and may."""
        routing = self.routing()
        if routing is None or not routing.chains or self.inquiry() is not None:
            return False
        if any(m.state is not PublicState.SERVING for chain in routing.chains.values() for m in chain.members):
            return False
        for host in self.storage_hosts:
            node = self.storages.get(host)
            if node is None or not self.processes[host].running:
                return False
            members = {t.target_id for t in routing.targets.values() if f"s{t.node_id}" == host}
            if members != set(node.targets.by_id):
                return False
            for target in node.targets:
                chain = routing.chains[target.chain.chain_id]
                if target.chain.version != chain.version or target.leased_until <= target._clock.monotonic():
                    return False
        return True
