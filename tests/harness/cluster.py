"""A real cluster on this machine: a manager, a meta service, storage processes, each with a directory of its own."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import threefs_client
from threefs_cli.readiness import incomplete_chains

from tests.harness.processes import Program, free_port
from threefs.env.net import RealNet
from threefs.rpc import methods
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2

START_S = 60.0


class LocalCluster:
    """`with LocalCluster(directory) as cluster: fs = cluster.connect()`."""

    def __init__(
        self,
        directory: Path,
        *,
        storage: int = 3,
        replicas: int = 3,
        targets_per_disk: int = 4,
        token: str = "",
        lease_s: float = 10.0,
        host: str = "127.0.0.1",
        prefixes: Mapping[int, Sequence[str]] | None = None,
        metrics: bool = False,
        prefix: Sequence[str] = (),
        storage_settings: Mapping[str, Any] | None = None,
        same_ports: bool = False,
    ) -> None:
        """`prefix`: a command that runs each process. `prefixes`: others for the storage processes of these nodes.
        `metrics`: every process has a port for Prometheus. `storage_settings`: further settings of the storage
        processes. `same_ports`: not only the manager serves where it was when it is started again."""
        self._same_ports = same_ports
        self._storage_settings = storage_settings or {}
        self._prefix = prefix
        self._metrics = metrics
        self._prefixes = prefixes or {}
        self.token = token
        self._host = host
        self._directory = directory
        self._replicas = replicas
        self._targets_per_disk = targets_per_disk
        self._storage_count = storage
        self.manager = Program(
            "threefs_manager",
            directory / "manager",
            prefix,
            host=host,
            port=free_port(),  # where the others look for it when it is started again
            control_port=free_port(),
            token=token,
            lease_s=lease_s,
            **self._metrics_port(),
        )
        self.meta: Program
        self.storage: dict[int, Program] = {}

    @property
    def address(self) -> str:
        return f"threefs://{self.manager.address}"

    def connect(self, **options: Any) -> threefs_client.FileSystem:
        return threefs_client.connect(self.address, **{"timeout_s": 30.0, "token": self.token, **options})

    def start(self) -> "LocalCluster":
        self.manager.start()
        planned = [
            pb.PlannedNode(node_id=number, domain=f"host{number}") for number in range(1, self._storage_count + 1)
        ]
        self.ask(
            methods.INIT,
            pb.InitRequest(storage=planned, replicas=self._replicas, targets_per_disk=self._targets_per_disk),
        )
        for node in planned:
            self.launch_storage(node.node_id, node.domain)
        where = self._where()
        self.meta = Program("threefs_meta", self._directory / "meta", self._prefix, **self._metrics_port(), **where)
        self.meta.launch()
        for program in (*self.storage.values(), self.meta):
            program.wait_ready()
        self.wait_whole()
        return self

    def launch_storage(self, node_id: int, domain: str) -> None:
        """Start the process of a storage node that is in the plan."""
        directory = self._directory / f"storage-{node_id}"
        own = {"node_id": node_id, "domain": domain, **self._metrics_port(), **self._storage_settings}
        prefix = self._prefixes.get(node_id, self._prefix)
        self.storage[node_id] = Program("threefs_storage", directory, prefix, **own, **self._where())
        self.storage[node_id].launch()

    def _where(self) -> dict[str, Any]:
        """The settings that all services but the manager share."""
        managers = {"manager": self.manager.address, "control": self.manager.addresses[1]}
        return {**managers, "host": self._host, "token": self.token, "port": free_port() if self._same_ports else 0}

    def _metrics_port(self) -> dict[str, Any]:
        return {"metrics_port": free_port()} if self._metrics else {}

    def wait_whole(self) -> None:
        """A storage process that starts slowly is put out of its chains, and is brought up to date then."""
        deadline = time.monotonic() + START_S
        while waiting := incomplete_chains(self.ask(methods.GET_STATUS, pb.GetStatusRequest())):
            assert time.monotonic() < deadline, f"chains {waiting} are not whole"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop what runs; whatever does not stop cleanly is killed, and fails the test."""
        failures = []
        for program in (self.meta, *self.storage.values(), self.manager):
            try:
                if program.process.poll() is None:
                    program.stop()
            except AssertionError as error:
                failures.append(str(error))
        assert not failures, "\n".join(failures)

    def kill(self) -> None:
        for program in (getattr(self, "meta", None), *self.storage.values(), self.manager):
            if program is not None and program.launched and program.process.poll() is None:
                program.kill()

    def ask(self, method: Method[Req, Rep], request: Req) -> Rep:
        """Call the manager."""
        return self._ask([self.manager], method, request)[0]

    def chunks(self) -> int:
        """On all targets."""
        replies = self._ask(list(self.storage.values()), methods.SPACE_INFO, storage_pb2.SpaceInfoRequest())
        return sum(target.chunks for reply in replies for target in reply.targets)

    def _ask(self, programs: Sequence[Program], method: Method[Req, Rep], request: Req) -> list[Rep]:
        async def work() -> list[Rep]:
            peers = ConnectionPool(RealNet(), Identity("", "0" * 32, self.token, "tests"))
            try:
                return [await peers.call(each.address, method, request, timeout_s=START_S) for each in programs]
            finally:
                await peers.close()

        return asyncio.run(work())

    def __enter__(self) -> "LocalCluster":
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
