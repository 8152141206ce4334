"""The processes of a chaos run: real programs, in network namespaces where that is possible."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.namespaces import Network, Unprivileged
from tests.harness import etcd, mounts
from tests.harness.etcd import EtcdCluster, EtcdMember
from tests.harness.mounts import Mount
from tests.harness.processes import Program, free_port
from threefs import cluster_key
from threefs.cluster.manager_client import ManagerClient
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.routing import PublicState
from threefs.rpc import methods
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.wire import manager_pb2 as pb

_PRIMARY_S = 120.0
REPLICAS = 3
FULL_DISK_BYTES = 192 << 20
KEY = "the key of a cluster in chaos"  # which other machines could reach


@dataclass(frozen=True, slots=True)
class Shape:
    """How many there are of each. With `etcd`, managers and meta services share a store of so many members."""

    managers: int = 1
    metas: int = 1
    storage: int = 4  # of which the last one joins, and gets its targets under load
    etcd: int = 0
    mounts: int = 0
    lease_s: float = 2.0  # T


SMALL = Shape()
WIDE = Shape(managers=3, metas=2, etcd=3, mounts=2)


def lacking(shape: Shape) -> str:
    """Why a cluster of this shape cannot run here; empty when it can."""
    return (shape.etcd and etcd.lacking()) or (shape.mounts and mounts.lacking()) or ""


class Cluster:
    """Storage processes, of which three have all replicas at first, and what the shape says of the others."""

    def __init__(self, directory: Path, network: Network | None, shape: Shape = SMALL) -> None:
        self.network = network
        self.directory = directory
        self.shape = shape
        self.managers, self.storage, self.metas = names_of(shape)
        self.programs: dict[str, Program] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._key_file = directory / "key"
        cluster_key.make(self._key_file, KEY)
        self.mounted: list[Path] = []
        self.mounts = {f"mount{number}": directory / f"mount{number}" for number in range(1, shape.mounts + 1)}
        self._mounted: dict[str, Mount] = {}
        self.etcd = EtcdCluster(directory / "etcd", shape.etcd, host=self._gateway) if shape.etcd else None
        managers = {name: (self._host(name), free_port(), free_port()) for name in self.managers}
        self.addresses = [f"{host}:{port}" for host, port, _ in managers.values()]
        for name, (host, port, control) in managers.items():
            self._add("threefs_manager", name, host=host, port=port, control_port=control, lease_s=shape.lease_s)
        where = {"manager": ",".join(self.addresses)}
        for number, name in enumerate(self.storage, 1):
            own: dict[str, Any] = {"node_id": number, "domain": name, "scrub_interval_s": 5.0}
            self._add("threefs_storage", name, host=self._host(name), port=free_port(), **own, **where)
        for name in self.metas:
            self._add("threefs_meta", name, host=self._host(name), port=free_port(), **where)

    @property
    def address(self) -> str:
        """As clients name it."""
        return f"threefs://{','.join(self.addresses)}"

    @property
    def _gateway(self) -> str:
        return self.network.gateway if self.network is not None else "127.0.0.1"

    def _host(self, name: str) -> str:
        return (
            self.network.addresses[name]
            if self.network is not None and name in self.network.addresses
            else self._gateway
        )

    def _add(self, module: str, name: str, **settings: Any) -> None:
        inside = self.network is not None and name in self.network.addresses
        prefix = self.network.inside(name) if self.network is not None and inside else ()
        if self.etcd is not None and name not in self.storage:
            settings["engine"] = f"{self.etcd.url}/{module}"
        self.programs[name] = Program(module, self.directory / name, prefix, token=KEY, **settings)

    @property
    def store(self) -> str:
        """The URL of the metadata."""
        if self.etcd is not None:
            return f"{self.etcd.url}/threefs_meta"
        return f"rocks://{self.programs[self.metas[0]].settings['data_dir']}/kv"

    async def start(self) -> None:
        if self.etcd is not None:
            await asyncio.to_thread(self.etcd.start)
        for name in self.managers:
            self.programs[name].launch()
        for name in self.managers:
            self.programs[name].wait_ready()
        await self._wait_for_primary()
        storage = [pb.PlannedNode(node_id=number) for number in range(1, len(self.storage) + 1)]
        await self.ask(methods.INIT, pb.InitRequest(storage=storage[:REPLICAS], replicas=REPLICAS, targets_per_disk=3))
        await self.ask(methods.ADD_NODES, pb.AddNodesRequest(storage=storage[REPLICAS:]))
        self._limit_disk(self.storage[-1])
        for name in [*self.storage, *self.metas]:
            self.programs[name].launch()
        for name in [*self.storage, *self.metas]:
            self.programs[name].wait_ready()
        for name in self.mounts:
            await asyncio.to_thread(self.mount, name)

    def mount(self, name: str) -> None:
        """Mount it, also again after the process behind it has died."""
        mount = self._mounted.get(name)
        if mount is not None:
            mount.umount("--lazy")
        mount = self._mounted[name] = Mount(self.address, self.mounts[name], "--key-file", str(self._key_file))
        mount.mount()

    def mount_pid(self, name: str) -> int:
        return self._mounted[name].pid

    def kill_mount(self, name: str) -> None:
        self._mounted[name].kill()

    def _limit_disk(self, name: str) -> None:
        """That process gets a disk of its own, small enough to be filled."""
        data = Path(self.programs[name].settings["data_dir"])
        data.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES}", "tmpfs", str(data)]
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            print(f"skipped: full disks ({error})")
        else:
            self.mounted.append(data)

    def alive(self, name: str) -> bool:
        program = self.programs[name]
        return program.launched and program.process.poll() is None

    def kill(self, name: str) -> None:
        if self.alive(name):
            self.programs[name].kill()

    def kill_all(self) -> None:
        """All services at one moment, as when the power goes."""
        for name in self.programs:
            self.signal(name, signal.SIGKILL)
        for name in self.programs:
            self.kill(name)
            self.programs[name].process.wait()

    def member(self, name: str) -> EtcdMember:
        assert self.etcd is not None
        return next(member for member in self.etcd.members if member.name == name)

    def ended(self) -> list[str]:
        """What runs no longer, although nobody ended it."""
        return [f"{name} has ended:\n{self.programs[name].log()}" for name in self.programs if not self.alive(name)]

    def keep_logs(self, directory: Path) -> None:
        """And what the programs on its mounts have printed."""
        for log in [*self.directory.rglob("log"), *self.directory.glob("counted-*")]:
            kept = directory / log.relative_to(self.directory)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept)

    def launch(self, name: str) -> None:
        if not self.alive(name):
            self.programs[name].launch()

    def signal(self, name: str, number: signal.Signals) -> None:
        if self.alive(name):
            self.programs[name].process.send_signal(number)

    async def healthy(self, limit_s: float) -> str:
        """Wait until every target serves; what is wrong if that takes too long."""
        end = time.monotonic() + limit_s
        wrong = "nothing was heard"
        while time.monotonic() < end:
            try:
                status = await self.ask(methods.GET_STATUS, pb.GetStatusRequest())
                bad = [
                    f"{member.target_id}:{PublicState(member.state).name.lower()}"
                    for chain in status.chains
                    for member in chain.members
                    if member.state != pb.SERVING
                ]
                if not bad:
                    return ""
                wrong = " ".join(bad)
            except ThreefsError as error:
                wrong = str(error)
            await asyncio.sleep(0.1)
        return wrong

    def node_id(self, name: str) -> int:
        return self.storage.index(name) + 1

    async def _wait_for_primary(self) -> None:
        """A manager that is ready may still stand for its first term. Raises NotPrimary, Unavailable."""
        deadline = time.monotonic() + _PRIMARY_S
        while True:
            try:
                await self.ask(methods.GET_STATUS, pb.GetStatusRequest())
                return
            except ThreefsError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.1)

    async def ask(self, method: methods.Method[methods.Req, methods.Rep], request: methods.Req) -> methods.Rep:
        """Call the primary manager."""
        peers = ConnectionPool(RealNet(), Identity("", "0" * 32, KEY, "chaos"))
        try:
            managers = ManagerClient.over_frames(peers, self.addresses)
            return await managers.call(method, request, timeout_s=10)
        finally:
            await peers.close()

    def end(self) -> list[str]:
        """Stop everything that runs, but the store; what did not stop well."""
        failures = []
        for mount in self._mounted.values():
            try:
                mount.umount()
            except AssertionError as error:
                failures.append(str(error)[:2000])
        self._mounted.clear()
        running = [name for name in [*self.managers, *self.storage, *self.metas] if self.alive(name)]
        for name in running:
            self.programs[name].settle()  # while there is a manager to register with
        for name in running:
            try:
                self.programs[name].stop()
            except AssertionError as error:
                failures.append(str(error)[:2000])
        return failures

    def close(self) -> None:
        for point in self.mounts.values():
            subprocess.run(["umount", "--lazy", str(point)], capture_output=True)
        for mount in self._mounted.values():
            with contextlib.suppress(ProcessLookupError):
                mount.kill()
        for name, program in self.programs.items():
            self.signal(name, signal.SIGCONT)
            if program.launched:
                program.kill()
        if self.etcd is not None:
            self.etcd.stop()
        for data in self.mounted:
            subprocess.run(["umount", "-l", str(data)], capture_output=True)


def names_of(shape: Shape) -> tuple[list[str], list[str], list[str]]:
    """Of managers, storage processes and meta services; the only one of its kind has no number."""

    def named(kind: str, count: int) -> list[str]:
        return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]

    return named("manager", shape.managers), named("storage", shape.storage), named("meta", shape.metas)


def in_namespaces(shape: Shape) -> Sequence[str]:
    """Those that can be cut off from each other. A lone manager and a lone meta service are with the clients."""
    managers, storage, metas = names_of(shape)
    return [*storage, *(managers if shape.managers > 1 else ()), *(metas if shape.metas > 1 else ())]


@contextlib.contextmanager
def cluster_in(directory: Path, shape: Shape = SMALL) -> Iterator[Cluster]:
    try:
        network: Network | None = Network(in_namespaces(shape)).__enter__()
    except Unprivileged as error:
        print(f"skipped: faults of the network ({error})")
        network = None
    cluster = Cluster(directory, network, shape)
    try:
        yield cluster
    finally:
        cluster.close()
        if network is not None:
            network.close()
