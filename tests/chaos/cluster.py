"""The processes of a chaos run: real programs, the storage ones in network namespaces where that is possible."""

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.namespaces import Network, Unprivileged
from tests.support.processes import Program, free_port
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.routing import PublicState
from threefs.rpc import methods
from threefs.rpc.identity import Identity
from threefs.rpc.peers import Peers
from threefs.wire import manager_pb2 as pb

LEASE_S = 2.0  # T
FULL_DISK_BYTES = 192 << 20


class Cluster:
    """One manager, one meta service, three storage processes with all replicas on each."""

    def __init__(self, directory: Path, network: Network | None, storage: int) -> None:
        self.network = network
        self.directory = directory
        host = network.gateway if network is not None else "127.0.0.1"
        port, control = free_port(), free_port()
        self.address = f"{host}:{port}"
        where = {"manager": self.address, "control": f"{host}:{control}"}
        self.programs: dict[str, Program] = {
            "manager": Program(
                "threefs_manager",
                directory / "manager",
                host=host,
                port=port,
                control_port=control,
                lease_s=LEASE_S,
            )
        }
        self.storage = [f"storage{n}" for n in range(1, storage + 1)]
        self.mounted: list[Path] = []
        for number, name in enumerate(self.storage, 1):
            at = network.addresses[name] if network is not None else "127.0.0.1"
            program = Program(
                "threefs_storage",
                directory / name,
                prefix=network.inside(name) if network is not None else (),
                node_id=number,
                domain=name,
                host=at,
                port=free_port(),
                scrub_interval_s=5.0,
                **where,
            )
            self.programs[name] = program
        self.programs["meta"] = Program("threefs_meta", directory / "meta", host=host, port=free_port(), **where)

    async def start(self) -> None:
        self.programs["manager"].start()
        await self._call(
            methods.INIT,
            pb.InitRequest(
                storage=[pb.PlannedNode(node_id=n) for n in range(1, len(self.storage) + 1)],
                replicas=3,
                targets_per_disk=3,
            ),
        )
        self._limit_disk(self.storage[-1])
        for name in [*self.storage, "meta"]:
            self.programs[name].launch()
        for name in [*self.storage, "meta"]:
            self.programs[name].wait_ready()

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
        """All at one moment, as when the power goes."""
        for name in self.programs:
            self.signal(name, signal.SIGKILL)
        for name in self.programs:
            self.kill(name)
            self.programs[name].process.wait()

    def ended(self) -> list[str]:
        """What runs no longer, although nobody ended it."""
        return [f"{name} has ended:\n{self.programs[name].log()}" for name in self.programs if not self.alive(name)]

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
                status = await self._call(methods.GET_STATUS, pb.GetStatusRequest())
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

    async def _call(self, method: methods.Method[methods.Req, methods.Rep], request: methods.Req) -> methods.Rep:
        peers = Peers(RealNet(), Identity("", "0" * 32, "", "chaos"))
        try:
            return await peers.call(self.address, method, request, timeout_s=10)
        finally:
            await peers.close()

    def end(self) -> list[str]:
        """Stop everything that runs; what did not stop well."""
        failures = []
        running = [name for name in ["manager", *self.storage, "meta"] if self.alive(name)]
        for name in running:
            self.programs[name].settle()  # while there is a manager to register with
        for name in running:
            try:
                self.programs[name].stop()
            except AssertionError as error:
                failures.append(str(error)[:2000])
        return failures

    def close(self) -> None:
        for name, program in self.programs.items():
            self.signal(name, signal.SIGCONT)
            if program.launched:
                program.kill()
        for data in self.mounted:
            subprocess.run(["umount", "-l", str(data)], capture_output=True)


@contextlib.contextmanager
def cluster_in(directory: Path, storage: int = 3) -> Iterator[Cluster]:
    names = [f"storage{n}" for n in range(1, storage + 1)]
    try:
        network: Network | None = Network(names).__enter__()
    except Unprivileged as error:
        print(f"skipped: faults of the network ({error})")
        network = None
    cluster = Cluster(directory, network, storage)
    try:
        yield cluster
    finally:
        cluster.close()
        if network is not None:
            network.close()
