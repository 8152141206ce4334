"""A cluster on this machine: starts the service programs, finds them again, and stops them.

    DIRECTORY/cluster.json          plan, addresses, processes
    DIRECTORY/key                   the key that programs need to use the cluster
    DIRECTORY/NAME/settings.toml    of each program: manager, manager-2, meta, meta-2, storage-1, storage-2, ...
    DIRECTORY/NAME/log, data/

It runs programs and never imports them.
"""

import asyncio
import dataclasses
import json
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from threefs_client import keyring

from threefs import cluster_key
from threefs.cluster.manager_client import NO_ANSWER, ManagerClient
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import RealNet, parse_address
from threefs.env.random import RANDOM
from threefs.errors import InvalidArgument, StrangeStore, ThreefsError, Unavailable
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import ADD_NODES, GET_STATUS, INIT, REBALANCE, Method, Rep, Req
from threefs.telemetry.tracing import TRACE_VARIABLE
from threefs.wire import manager_pb2 as pb
from threefs_cli import cluster_file, cluster_place, local_engines, plan_change, processes, readiness
from threefs_cli.cluster_file import EMBEDDED, ETCD, MANAGER, META, POSTGRESQL, STORAGE, ClusterFile, Plan, Program
from threefs_cli.engine_launcher import EngineLauncher

HOST = "127.0.0.1"
START_S = 60.0
CHAINS_S = 30.0  # three lease times: targets that have died are out of their chains by then
STOP_S = 15.0
_POLL_S = 0.02
_STORES = ("manager", "meta")  # in an engine that is shared
_JOINED_NAME = "cluster_id"

Progress = Callable[[str], None]


class LocalCluster:
    """The cluster in `directory`, running or not."""

    def __init__(self, directory: Path, *, clock: Clock = CLOCK) -> None:
        self.directory = directory.absolute()
        self._clock = clock

    def load(self) -> ClusterFile | None:
        return cluster_file.load(self.directory)

    def running(self) -> list[Program]:
        found = self.load()
        return [program for program in found.programs if program.runs] if found else []

    async def up(
        self,
        plan: Plan | None = None,
        *,
        port: int = 0,
        progress: Progress = lambda line: None,
        lacking: list[str] | None = None,
    ) -> ClusterFile:
        """Start the programs that do not run, and wait until their chains take writes. The data of an earlier start is
        kept. After CHAINS_S it goes on without chains that do not, and says so.

        Raises InvalidArgument for a plan that differs from that of the existing cluster, Unavailable for a program that
        does not start. In an existing cluster, a process that others can stand in for leaves the others running: of
        several managers, meta services or members of the engine, and every storage process, because its chains have
        other copies, or an administrator must decide about them, which needs a running manager. What is wrong with them
        is an error all the same, unless `lacking` is there to get it. Any other start that fails leaves nothing running
        that it has started.
        """
        with cluster_place.locked(self.directory):
            state = self._load_or_plan(plan, port)
            self._ensure_key(state, progress)
            before = {program.name for program in state.programs if program.runs}
            initialized = self._is_initialized(state)
            new = [program.name for program in state.of(STORAGE) if not program.addresses]
            try:
                self._check_manager_store(state)
                state, failures = await self._start_engine(state, progress, new=not initialized)
                state = await self._start(state, state.of(MANAGER), port, progress, failures, new=not initialized)
                self._record_key(state)
                joining = {program.name for program in state.of(META, STORAGE)}
                if initialized:
                    status = await self._call_manager(state, GET_STATUS, pb.GetStatusRequest())
                    state = self._without_removed(state, status, progress)
                    # The manager changes nothing before it has heard the storage processes that it knows.
                    nodes = {row.node.node_id for row in status.nodes}
                    joining = {p.name for p in state.of(STORAGE) if p.name in new and p.node_id not in nodes}
                    known = [program for program in state.of(META, STORAGE) if program.name not in joining]
                    state = await self._start(state, known, port, progress, failures, new=False)
                await (self._add_nodes(state) if initialized else self._init(state))
                rest = [program for program in state.of(META, STORAGE) if program.name in joining]
                state = await self._start(state, rest, port, progress, failures, new=not initialized)
                if not failures:  # else chains may wait for an administrator
                    await self._await_chains(state, progress)
                if initialized and new:
                    failures += await self._rebalance(state, ", ".join(new), progress)
            except BaseException:
                await self._take_back([program for program in self.running() if program.name not in before])
                self._forget_addresses(new)
                raise
            if failures:
                told = f"{'; '.join(failures)}; the rest of the cluster runs: `threefs status` says what is missing"
                if lacking is None:
                    raise Unavailable(told)
                lacking.append(told)
            return state

    async def forget(self, node_id: int) -> None:
        """Stop the storage process of a node that has left the cluster, and start it no more. Its directory stays."""
        with cluster_place.locked(self.directory):
            state = self.load()
            gone = [program for program in state.of(STORAGE) if program.node_id == node_id] if state else []
            await self._stop(gone)
            if state and gone:
                cluster_file.save(self.directory, state.without(gone))

    async def down(self) -> list[str]:
        """Stop all programs; the names of those that ran."""
        if self.load() is None:
            return []
        with cluster_place.locked(self.directory):
            running = self.running()
            # The managers first: else they would move the chains to the storage process that stops last.
            for modules in ((MANAGER,), (META, STORAGE), (ETCD, POSTGRESQL)):
                await self._stop([program for program in running if program.module in modules])
            return [program.name for program in running]

    async def kill(self, name: str) -> None:
        """Kill a program with SIGKILL, and wait for its end. For the demonstration."""
        await self._signal_and_wait([program for program in self.running() if program.name == name], signal.SIGKILL)

    async def watch(self, progress: Progress, stopped: Callable[[], bool]) -> None:
        """Report each program that ends, until `stopped` or until all have ended."""
        running = {program.name for program in self.running()}
        while running and not stopped():
            now = {program.name for program in self.running()}
            for name in sorted(running - now):
                progress(f"{name} has ended; its log is {self._log(name)}")
            running = now
            await self._clock.sleep(0.25)

    # ---- starting ----

    def planned(self, plan: Plan | None = None, port: int = 0) -> ClusterFile:
        """The cluster as `up` would start it. Nothing is changed. Raises InvalidArgument, AlreadyExists, NotADirectory
        and PermissionDenied as `up`."""
        state = self.load()
        cluster_place.check(self.directory)
        if state is None:
            return cluster_file.fresh(plan or Plan())
        _check_port(state, port)
        if plan is None or plan == state.plan:
            return state
        if self._is_initialized(state):
            runs = any(program.runs for program in state.programs)
            plan_change.check(state.plan, plan, runs=runs, where=str(self.directory))
        return state.replanned(plan)

    def _load_or_plan(self, plan: Plan | None, port: int) -> ClusterFile:
        before, state = self.load(), self.planned(plan, port)
        if state != before:
            cluster_file.save(self.directory, state)
        return state

    def _forget_addresses(self, names: Collection[str]) -> None:
        """Of storage processes whose first start was cut short: the next `up` takes them as new, and fills them."""
        state = self.load()
        for program in state.of(STORAGE) if state else ():
            if state and program.name in names:
                state = state.replace(dataclasses.replace(program, addresses=()))
        if state:
            cluster_file.save(self.directory, state)

    def _without_removed(self, state: ClusterFile, status: pb.GetStatusReply, progress: Progress) -> ClusterFile:
        """Without the storage processes whose nodes an administrator has removed from the cluster. One that has targets
        still, not only what is left of removed ones, is kept: the manager may be one that was restored, and not know it
        yet."""
        known = {row.node.node_id for row in status.nodes}
        gone = [
            program
            for program in state.of(STORAGE)
            if program.addresses and program.node_id not in known and not program.runs
            and not any((self.directory / program.name / "data").glob("target-*[0-9]"))
        ]  # fmt: skip
        if not (status.cluster_id and gone):
            return state
        for program in gone:
            progress(f"{program.name} has left the cluster: it is not started, and its directory may be removed")
        state = state.without(gone)
        cluster_file.save(self.directory, state)
        return state

    def _is_initialized(self, state: ClusterFile) -> bool:
        """Whether the cluster has its plan: a program that has joined a cluster keeps its id in its data."""
        return any((self.directory / program.name / "data" / _JOINED_NAME).exists() for program in state.programs)

    @property
    def key_file(self) -> Path:
        return cluster_file.key_file(self.directory)

    def _key(self) -> str:
        return cluster_key.read(self.key_file) if self.key_file.exists() else ""

    def _ensure_key(self, state: ClusterFile, progress: Progress) -> None:
        """Give the cluster a key, if it has none: the token of an old version, $THREEFS_TOKEN, or a new key."""
        named = os.environ.get(keyring.TOKEN_VARIABLE, "")
        if self.key_file.exists():
            if named not in ("", self._key()):
                raise InvalidArgument(f"${keyring.TOKEN_VARIABLE} is not the key of the cluster in {self.directory}")
            return
        running = [program.name for program in state.programs if program.runs]
        legacy = self._legacy_token()
        if running and not legacy:
            progress(f"{', '.join(running)} run without a key: until all are stopped, anybody here may use the cluster")
            return
        if named and legacy and named != legacy:
            raise InvalidArgument(f"${keyring.TOKEN_VARIABLE} is not the token of the cluster in {self.directory}")
        if given := legacy or named:
            cluster_key.checked(given, f"${keyring.TOKEN_VARIABLE}")
        cluster_key.make(self.key_file, given)

    def _legacy_token(self) -> str:
        """The token in the manager's settings, where versions without key files kept it; empty: none."""
        try:
            settings = tomllib.loads((self.directory / "manager" / "settings.toml").read_text(encoding="utf-8"))
        except (FileNotFoundError, tomllib.TOMLDecodeError):
            return ""
        return str(settings.get("token", ""))

    def _record_key(self, state: ClusterFile) -> None:
        if self.key_file.exists():
            for manager in state.of(MANAGER):
                if manager.addresses:
                    keyring.remember(manager.addresses[0], self.key_file)

    async def _start_engine(
        self, state: ClusterFile, progress: Progress, *, new: bool
    ) -> tuple[ClusterFile, list[str]]:
        """Start the engine. Returns the new state, and what is wrong with processes that can be missed."""
        engine = local_engines.of(self.directory, state)
        if engine is None:
            return state, []
        launcher = EngineLauncher(engine, self.directory, state, new=new, clock=self._clock)
        failures = await launcher.start(_STORES, START_S, progress)
        return launcher.state, failures

    async def _start(
        self,
        state: ClusterFile,
        programs: Iterable[Program],
        port: int,
        progress: Progress,
        failures: list[str],
        *,
        new: bool,
    ) -> ClusterFile:
        """Start those of these services that do not run, and wait until all serve that have not said so yet. In a
        cluster with data, `failures` gets the errors of those that can be missed. Returns the new state.

        Raises Unavailable for a program that is needed.
        """
        state, awaited = self._launch_all(state, [program.name for program in programs], port)
        deadline = self._clock.monotonic() + START_S
        for name in awaited:
            try:
                state = await self._await_serving(state, name, deadline - self._clock.monotonic(), progress)
                deadline = self._clock.monotonic() + START_S
            except Unavailable as error:
                if new or not self._others_serve(state, state.program(name)):
                    raise
                failures.append(error.message)
        return state

    def _others_serve(self, state: ClusterFile, program: Program) -> bool:
        """Whether the cluster can be used without this program."""
        others = [other for other in state.of(program.module) if other.name != program.name]
        return program.module == STORAGE or any(other.runs for other in others)

    def _launch_all(self, state: ClusterFile, names: Iterable[str], port: int) -> tuple[ClusterFile, list[str]]:
        """Launch those programs of `names` that do not run. Returns the new state, their names, and those of programs
        whose addresses are not known, because the `up` that launched them was killed."""
        awaited = []
        for name in names:
            program = state.program(name)
            runs = program.runs
            if not runs:
                state = state.replace(self._launch(state, program, port))
                cluster_file.save(self.directory, state)
            if not (runs and program.addresses):
                awaited.append(name)
        return state, awaited

    async def _await_serving(self, state: ClusterFile, name: str, timeout_s: float, progress: Progress) -> ClusterFile:
        addresses = await self._await_ready(state.program(name), timeout_s)
        state = state.replace(dataclasses.replace(state.program(name), addresses=addresses))
        cluster_file.save(self.directory, state)
        progress(f"{name} serves at {addresses[0]}")
        return state

    def _check_manager_store(self, state: ClusterFile) -> None:
        """Raises StrangeStore if the manager's store is missing: the manager would make a new cluster, and no data
        would belong to it."""
        kv = self.directory / "manager" / "data" / "kv"
        if state.plan.engine != EMBEDDED:
            return  # the manager finds that out
        if self._is_initialized(state) and not (kv / "CURRENT").exists():
            raise StrangeStore(
                f"the manager has lost its store: there is none in {kv}, but data of its cluster is there. Mount its "
                "disk, or restore the newest backup: `threefs restore BACKUP`. Without a backup: `threefs manager "
                "rebuild` (docs/backup.md)"
            )

    def _launch(self, state: ClusterFile, program: Program, port: int) -> Program:
        home = self.directory / program.name
        home.mkdir(exist_ok=True, mode=0o700)
        settings = home / "settings.toml"
        settings.touch(mode=0o600)
        settings.write_text(toml(self._settings(state, program, port)), encoding="utf-8")
        process = processes.start(
            [sys.executable, "-m", program.module, "--settings", str(settings)],
            output=self._output(program.name),
            log=self._log(program.name),
            environment=processes.child_environment(),
        )
        return dataclasses.replace(program, process=process)

    def _settings(self, state: ClusterFile, program: Program, port: int) -> dict[str, str | int]:
        ports = [parse_address(address)[1] for address in program.addresses]
        settings: dict[str, str | int] = {
            "data_dir": str(self.directory / program.name / "data"),
            "host": HOST,
        }
        if self.key_file.exists():
            settings["key_file"] = str(self.key_file)
        engine = local_engines.of(self.directory, state)
        if engine is not None and program.module in (MANAGER, META):
            settings["engine"] = engine.url(state, _STORES[program.module == META])
        if program.module == MANAGER:
            first, control = ports or [port if program.name == "manager" else 0, 0]
            return {**settings, "port": first, "control_port": control}
        managers = [manager.addresses for manager in state.of(MANAGER) if manager.addresses]
        settings |= {"port": ports[0] if ports else 0}
        settings |= {"manager": ",".join(each[0] for each in managers)}
        if program.module == META:
            settings |= {"owner_uid": os.geteuid(), "owner_gid": os.getegid()}
        if program.module == STORAGE:
            settings |= {"node_id": program.node_id, "domain": program.name}
            if endpoint := os.environ.get(TRACE_VARIABLE):
                settings |= {"trace_endpoint": endpoint}
        return settings

    async def _await_ready(self, program: Program, timeout_s: float) -> tuple[str, ...]:
        """Wait for the `ready` line of a program; the addresses in it."""
        assert program.process is not None, "it was launched"
        deadline = self._clock.monotonic() + timeout_s
        while True:
            line, complete, _ = self._output(program.name).read_text(encoding="utf-8").partition("\n")
            if complete and line.startswith("ready "):
                return tuple(line.split()[1:])
            if not processes.alive(program.process):
                raise Unavailable(processes.failure(program.name, self._log(program.name)))
            if self._clock.monotonic() > deadline:
                break
            await self._clock.sleep(_POLL_S)
        raise Unavailable(
            f"{program.name} was not ready after {START_S:.0f} s: "
            f"{processes.last_log_line(self._log(program.name))} (log: {self._log(program.name)})"
        )

    async def _await_chains(self, state: ClusterFile, progress: Progress) -> None:
        """Wait until every chain takes writes: at first the manager believes that all targets serve."""
        deadline = self._clock.monotonic() + CHAINS_S
        while True:
            status = await self._call_manager(state, GET_STATUS, pb.GetStatusRequest())
            unready = readiness.unready_chains(status)
            if not unready:
                return
            if self._clock.monotonic() > deadline:
                break
            await self._clock.sleep(_POLL_S)
        progress(
            f"{len(unready)} of {len(status.chains)} chains take no writes yet: `threefs status` says what they lack"
        )

    async def _init(self, state: ClusterFile) -> None:
        """Give the cluster its plan; harmless if it has it already."""
        plan = state.plan
        request = pb.InitRequest(
            storage=_planned_nodes(state),
            replicas=plan.replicas,
            targets_per_disk=plan.targets_per_disk,
            min_replicas=plan.min_replicas,
        )
        await self._call_manager(state, INIT, request)

    async def _add_nodes(self, state: ClusterFile) -> None:
        """Let the storage processes join the plan of the cluster; harmless for those that are in it."""
        await self._call_manager(state, ADD_NODES, pb.AddNodesRequest(storage=_planned_nodes(state)))

    async def _rebalance(self, state: ClusterFile, new: str, progress: Progress) -> list[str]:
        """Let the new storage processes get their share. Returns why they do not."""
        try:
            await self._call_manager(state, REBALANCE, pb.RebalanceRequest())
        except ThreefsError as error:
            return [f"no targets move to {new} before `threefs rebalance`: {error.message}"]
        progress(f"targets move to {new}; `threefs node ls` shows how far they are")
        return []

    async def _call_manager(self, state: ClusterFile, method: Method[Req, Rep], request: Req) -> Rep:
        """Call the primary. Of managers that share a store, none may be primary yet."""
        peers = ConnectionPool(RealNet(), Identity("", RANDOM.token(16).hex(), self._key(), "threefs"))
        addresses = [manager.addresses[0] for manager in state.of(MANAGER) if manager.addresses]
        managers = ManagerClient.over_frames(peers, addresses)
        deadline = self._clock.monotonic() + START_S
        try:
            while True:
                try:
                    return await managers.call(method, request, timeout_s=START_S)
                except NO_ANSWER:
                    if state.plan.engine == EMBEDDED or self._clock.monotonic() > deadline:
                        raise
                await self._clock.sleep(_POLL_S)
        finally:
            await peers.close()

    def _output(self, name: str) -> Path:
        return self.directory / name / "ready"

    def _log(self, name: str) -> Path:
        return self.directory / name / "log"

    # ---- stopping ----

    async def _take_back(self, started: Sequence[Program]) -> None:
        """Stop what a start has started that fails. A signal that comes meanwhile changes nothing about that."""
        try:
            await self._stop(started)
        except asyncio.CancelledError:
            await self._stop(started)

    async def _stop(self, programs: Sequence[Program]) -> None:
        """Send SIGTERM to all programs, and SIGKILL to those that do not end in time."""
        await self._signal_and_wait(await self._signal_and_wait(programs, signal.SIGTERM), signal.SIGKILL)

    async def _signal_and_wait(self, programs: Sequence[Program], number: signal.Signals) -> list[Program]:
        """Send a signal and wait; the programs that still run after STOP_S."""
        for program in programs:
            if program.process is not None:
                waits = program.module == POSTGRESQL and number == signal.SIGTERM  # until its clients have gone
                processes.send(program.process, signal.SIGINT if waits else number)
        deadline = self._clock.monotonic() + STOP_S
        while (left := [program for program in programs if program.runs]) and self._clock.monotonic() < deadline:
            await self._clock.sleep(_POLL_S)
        return left


def toml(settings: dict[str, str | int]) -> str:
    """Settings as TOML: strings in JSON form are valid TOML."""
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())


def _check_port(state: ClusterFile, port: int) -> None:
    """Raises InvalidArgument for another port than that of the first start, because clients know the address."""
    addresses = state.program("manager").addresses
    if port and addresses and parse_address(addresses[0])[1] != port:
        raise InvalidArgument(
            f"the manager of this cluster serves at {addresses[0]} since its first start; leave --port {port} out, "
            "or start another cluster with --dir"
        )


def _planned_nodes(state: ClusterFile) -> list[pb.PlannedNode]:
    return [pb.PlannedNode(node_id=program.node_id, domain=program.name) for program in state.of(STORAGE)]
