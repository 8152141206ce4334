"""A real etcd cluster on this machine, of Debian's package. Members are processes that a test may kill."""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

import grpc
import pytest

from tests.harness.processes import free_port
from threefs.kv.etcd_members import MAX_OPERATIONS, Members
from threefs.wire import etcd_pb2 as pb

START_S = 60.0


def lacking() -> str:
    """Why no cluster can be started here; empty when it can."""
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        return "no etcd on this machine: install etcd-server and etcd-client"
    return ""


def needs_etcd() -> None:
    if reason := lacking():
        pytest.skip(reason)


class EtcdMember:
    def __init__(self, name: str, directory: Path, host: str = "127.0.0.1") -> None:
        self.name = name
        self.host = host
        self.client_port, self.peer_port = free_port(), free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    def launch(self, initial: str, *options: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://{self.address}", f"http://{self.host}:{self.peer_port}"
        command = ["etcd", "--name", self.name, "--data-dir", str(self._directory / "data")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", initial, "--initial-cluster-token", "threefs-tests"]
        command += ["--max-txn-ops", str(MAX_OPERATIONS), "--logger", "zap", *options]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_S)

    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-3000:]


class EtcdCluster:
    def __init__(self, directory: Path, size: int = 3, *options: str, host: str = "127.0.0.1") -> None:
        self.members = [EtcdMember(f"m{number}", directory / f"m{number}", host) for number in range(size)]
        self._initial = ",".join(f"{member.name}=http://{host}:{member.peer_port}" for member in self.members)
        self._options = options

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    @property
    def url(self) -> str:
        return f"etcd://{','.join(self.addresses)}"

    def launch(self, member: EtcdMember) -> None:
        member.launch(self._initial, *self._options)

    def start(self) -> "EtcdCluster":
        for member in self.members:
            self.launch(member)
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Until it answers what most members must agree on."""

        async def ask() -> None:
            members = Members(self.addresses)
            try:
                await members.read(pb.EtcdRange(key=b"ready"))
            finally:
                await members.close()

        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:  # a refused connection takes no time, so counting tries would end early
            try:
                asyncio.run(ask())
                return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("\n".join(member.log() for member in self.members))

    def leader(self) -> EtcdMember:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for member in self.members:
                if member.runs and _leads(member.address):
                    return member
            time.sleep(0.1)
        raise AssertionError("the cluster has no leader")

    def stop(self) -> None:
        for member in self.members:
            member.kill()

    def __enter__(self) -> "EtcdCluster":
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _leads(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        status = channel.unary_unary(
            "/etcdserverpb.Maintenance/Status",
            request_serializer=lambda message: b"",
            response_deserializer=pb.EtcdStatus.FromString,
        )
        try:
            reply = status(None, timeout=5)
        except grpc.RpcError:
            return False
    return bool(reply.leader) and reply.leader == reply.header.member_id
