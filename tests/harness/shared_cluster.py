"""A real cluster whose managers and meta services share a store: several of each, on this machine."""

import asyncio
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import threefs_client

from tests.harness.processes import Program, free_port
from threefs.cluster.manager_client import ManagerClient
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.rpc import methods
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import manager_pb2 as pb

_PATIENCE_S = 120.0  # until a manager is primary
_PAUSE_S = 0.1
STORAGE = 3
LEASE_S = 30.0  # managers change after a quarter of it: on a busy machine none must lose its term for being slow


class SharedCluster:
    def __init__(
        self,
        directory: Path,
        manager_engine: str,
        meta_engine: str,
        *,
        managers: int = 2,
        metas: int = 2,
        **options: Any,
    ) -> None:
        """`options` are those of the clients."""
        self._options = {"timeout_s": 90.0, "connect_timeout_s": 60.0} | options
        self.managers = [
            Program(
                "threefs_manager",
                directory / f"manager-{number}",
                port=free_port(),
                control_port=free_port(),
                engine=manager_engine,
                lease_s=LEASE_S,
            )
            for number in range(managers)
        ]
        where: dict[str, Any] = {
            "manager": ",".join(self._addresses("port")),
            "port": 0,
        }
        self.metas = [
            Program("threefs_meta", directory / f"meta-{number}", engine=meta_engine, **where)
            for number in range(metas)
        ]
        self.storage = [
            Program("threefs_storage", directory / f"storage-{number}", node_id=number, domain=f"host{number}", **where)
            for number in range(1, STORAGE + 1)
        ]

    def _addresses(self, port: str) -> list[str]:
        return [f"127.0.0.1:{program.settings[port]}" for program in self.managers]

    @property
    def programs(self) -> list[Program]:
        return [*self.metas, *self.storage, *self.managers]

    def start(self) -> "SharedCluster":
        for program in self.managers:
            program.launch()
        for program in self.managers:
            program.wait_ready()
        planned = [pb.PlannedNode(node_id=n, domain=f"host{n}") for n in range(1, STORAGE + 1)]
        self.ask(methods.INIT, pb.InitRequest(storage=planned, replicas=STORAGE, targets_per_disk=2))
        for group in (self.storage, self.metas):
            for program in group:
                program.launch()
            for program in group:
                program.wait_ready()
        return self

    @property
    def address(self) -> str:
        return "threefs://" + ",".join(self._addresses("port"))

    def connect(self) -> threefs_client.FileSystem:
        return threefs_client.connect(self.address, **self._options)

    def ask(self, method: Method[Req, Rep], request: Req) -> Rep:
        """Of whichever manager is primary, once one is."""

        async def work() -> Rep:
            peers = ConnectionPool(RealNet(), Identity("", "0" * 32, "", "tests"))
            managers = ManagerClient.over_frames(peers, self._addresses("port"))
            failure: ThreefsError | None = None
            deadline = time.monotonic() + _PATIENCE_S
            try:
                while time.monotonic() < deadline:
                    try:
                        return await managers.call(method, request, timeout_s=10.0)
                    except ThreefsError as error:
                        failure = error
                        await asyncio.sleep(_PAUSE_S)
            finally:
                await peers.close()
            raise AssertionError(f"no primary: {failure}")

        return asyncio.run(work())

    def status(self) -> pb.GetStatusReply:
        return self.ask(methods.GET_STATUS, pb.GetStatusRequest())

    def primary(self) -> Program:
        """The manager that answers."""

        async def answers(address: str) -> bool:
            peers = ConnectionPool(RealNet(), Identity("", "0" * 32, "", "tests"))
            try:
                await peers.call(address, methods.GET_STATUS, pb.GetStatusRequest(), timeout_s=10.0)
                return True
            except ThreefsError:
                return False
            finally:
                await peers.close()

        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for program, address in zip(self.managers, self._addresses("port"), strict=True):
                if program.process.poll() is None and asyncio.run(answers(address)):
                    return program
        raise AssertionError("no manager is primary")

    def __enter__(self) -> "SharedCluster":
        try:
            return self.start()
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        for program in self.programs:
            if program.launched and program.process.poll() is None:
                program.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for program in self.programs:
                    if program.process.poll() is None:
                        program.stop()
        finally:
            self._kill()


class Load:
    """Applications that make, replace and remove small files, each in its own directory, and keep count."""

    def __init__(self, cluster: SharedCluster, workers: int = 2) -> None:
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._cluster = cluster
        self._there: list[dict[str, bytes]] = [{} for _ in range(workers)]
        self._done = [0] * workers
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(workers)]

    def _work(self, worker: int) -> None:
        there = self._there[worker]
        try:
            with self._cluster.connect() as fs:
                fs.mkdir(f"/load-{worker}")
                while not self._stop.is_set():
                    number = self._done[worker]
                    path = f"/load-{worker}/{number % 20}"
                    if number % 7 == 6 and path in there:
                        fs.remove(path)
                        del there[path]
                    else:
                        fs.write_file(path, b"%d" % number)
                        there[path] = b"%d" % number
                    self._done[worker] = number + 1
        except BaseException as error:
            self.errors.append(error)

    def wait(self, more: int = 6) -> None:
        """Until each of them has done so much more."""
        goal = [done + more for done in self._done]
        for _ in range(1200):
            if self.errors or all(done >= wanted for done, wanted in zip(self._done, goal, strict=True)):
                break
            self._stop.wait(_PAUSE_S)
        assert not self.errors, self.errors
        assert all(done >= wanted for done, wanted in zip(self._done, goal, strict=True)), "the load stands still"

    def check(self) -> None:
        """Everything that was acknowledged is there, and nothing else."""
        with self._cluster.connect() as fs:
            for worker, there in enumerate(self._there):
                names = {f"/load-{worker}/{entry.name}" for entry in fs.list(f"/load-{worker}")}
                assert names == set(there)
                for path, content in there.items():
                    assert fs.read_file(path) == content

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
