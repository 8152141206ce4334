"""`python -m tests.bench.incast`: many storage services answer the processes of one host at the same time, and the last
switch before it has a shallow queue. `make bench-incast` runs it.

The host is a network namespace. Its port at a bridge sends at a limited rate and drops what exceeds its queue (`tc
tbf`). 64 storage services run in four processes, each in a namespace of its own, and 8 client processes read from all
of them in step. Services are whole ones, over TCP; only the event loop of 16 of them is one. It needs root and `tc`.
"""

import asyncio
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import threefs_client

from benchmarks.testbed import memory_setting_bytes, peak_bytes
from tests.chaos.namespaces import Network, Unprivileged
from tests.harness.processes import Program, environment
from threefs.env.net import RealNet
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import INIT
from threefs.wire import manager_pb2 as pb

SENDER_HOSTS = ("s1", "s2", "s3", "s4")
CLIENTS = "cl"
_TOKEN = "incast"
_WARM_S = 2.0
_LINE_S = 3.0
_PATH = "/rows"
_SLOTS_FROM = "XDG_RUNTIME_DIR"

_SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    peer, data = server.accept()[0], bytes(1 << 20)
    try:
        while True: peer.sendall(data)
    except OSError: pass
"""
_RECEIVE = """
import socket, sys, time
seconds, total, data = float(sys.argv[3]), 0, bytearray(1 << 20)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    ends = time.monotonic() + 1.0
    while time.monotonic() < ends: peer.recv_into(data)
    began = time.monotonic()
    while time.monotonic() < began + seconds: total += peer.recv_into(data)
print(total / (time.monotonic() - began))
"""
_HOLD = """
import sys, time
from pathlib import Path
from threefs.env.host_slots import HostSlots
slots = HostSlots(Path(sys.argv[1]), 8)
while slots.take() is not None: pass
print("ready", flush=True)
time.sleep(60)
"""


@dataclass(frozen=True, slots=True)
class Shape:
    services: int = 64
    clients: int = 8
    row_bytes: int = 64 << 10
    seconds: float = 8.0
    rounds: int = 3
    rate_mbit: int = 100
    queue_bytes: int = 32 << 10


def lacking() -> str:
    """Why it cannot be measured here; empty when it can."""
    if os.geteuid():
        return "network namespaces need root"
    for program in ("ip", "tc", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no {program} here (iproute2, util-linux)"
    return ""


class Testbed:
    """Services, their network, and a file with a row at each of them."""

    def __init__(self, shape: Shape, scratch: Path) -> None:
        self.shape = shape
        self.scratch = scratch
        self.network = Network([*SENDER_HOSTS, CLIENTS])
        self._programs: list[Program] = []
        self._queue = False

    def __enter__(self) -> "Testbed":
        self.network.__enter__()
        try:
            for name in SENDER_HOSTS:  # packets of one frame each, as a switch sees them
                _run("ip", "-n", self.network._space(name), "link", "set", f"{self.network._space(name)}i",
                     "gso_max_segs", "1")  # fmt: skip
            self._start()
            self._write()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for program in reversed(self._programs):
            if program.launched and program.process.poll() is None:
                program.kill()
        self.network.close()

    def _start(self) -> None:
        shape, host = self.shape, self.network.gateway
        manager = Program("threefs_manager", self.scratch / "manager", host=host, port=0, control_port=0, token=_TOKEN)
        self._programs.append(manager)
        manager.start()
        asyncio.run(self._init(manager.address))
        where: dict[str, Any] = {"manager": manager.address, "control": manager.addresses[1], "token": _TOKEN}
        each = shape.services // len(SENDER_HOSTS)
        for number, name in enumerate(SENDER_HOSTS):
            senders = Program(
                "tests.bench.incast_senders",
                self.scratch / name,
                self.network.inside(name),
                host=self.network.addresses[name],
                first_node=1 + number * each,
                nodes=each,
                **where,
            )
            self._programs.append(senders)
            senders.launch()
        meta = Program("threefs_meta", self.scratch / "meta", host=host, port=0, **where)
        self._programs.append(meta)
        meta.launch()
        for program in self._programs[1:]:
            program.wait_ready()
        self.address = f"threefs://{manager.address}"

    async def _init(self, manager: str) -> None:
        nodes = [pb.PlannedNode(node_id=n, domain=f"host-{n}") for n in range(1, self.shape.services + 1)]
        peers = ConnectionPool(RealNet(), Identity("", "0" * 32, _TOKEN, "bench"))
        try:
            request = pb.InitRequest(storage=nodes, replicas=1, targets_per_disk=1)
            await peers.call(manager, INIT, request, timeout_s=60)
        finally:
            await peers.close()

    def _write(self) -> None:
        """One chunk at each service."""
        shape = self.shape
        with (
            threefs_client.connect(self.address, token=_TOKEN) as fs,
            fs.open(_PATH, "wb", chunk_bytes=shape.row_bytes, stripe=shape.services) as file,
        ):
            file.write(os.urandom(shape.row_bytes * shape.services))

    @property
    def senders(self) -> list[int]:
        """The processes of the storage services."""
        return [each.process.pid for each in self._programs if each.module == "tests.bench.incast_senders"]

    # ---- the line

    def limit(self, on: bool) -> None:
        """Make the port of the clients a slow one with a shallow queue, or a quick one."""
        if on == self._queue:
            return
        port = f"{self.network._space(CLIENTS)}o"
        if on:
            words = f"rate {self.shape.rate_mbit}mbit burst 16kb limit {self.shape.queue_bytes}".split()
            _run("tc", "qdisc", "add", "dev", port, "root", "tbf", *words)
        else:
            _run("tc", "qdisc", "del", "dev", port, "root")
        self._queue = on

    def line_bytes_per_s(self) -> float:
        """What one plain TCP connection gets through it."""
        server = subprocess.Popen(
            [*self.network.inside("s1"), sys.executable, "-c", _SERVE, self.network.addresses["s1"]],
            stdout=subprocess.PIPE,
        )
        assert server.stdout is not None
        try:
            port = server.stdout.readline().decode().strip()
            words = [self.network.addresses["s1"], port, str(_LINE_S)]
            found = subprocess.run(
                [*self.network.inside(CLIENTS), sys.executable, "-c", _RECEIVE, *words],
                stdout=subprocess.PIPE, check=True, timeout=60,
            )  # fmt: skip
            return float(found.stdout)
        finally:
            server.kill()
            server.wait()

    # ---- the load

    def read(self, clients: int, rows: int, senders: int, seconds: float, name: str) -> list[dict[str, Any]]:
        """What each of some client processes measures. 0 senders: without request-to-send."""
        runtime = self.scratch / f"runtime-{name}"
        runtime.mkdir(exist_ok=True)
        spec = {
            "address": self.address,
            "path": _PATH,
            "rows": rows,
            "row_bytes": self.shape.row_bytes,
            "warm_s": _WARM_S,
            "seconds": seconds,
            "options": {"token": _TOKEN, "noatime": True, "receive_senders": senders, "timeout_s": 60.0},
        }
        processes = [
            subprocess.Popen(
                [*self.network.inside(CLIENTS), sys.executable, "-m", "tests.bench.incast_client", json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**environment(), _SLOTS_FROM: str(runtime)},
            )
            for _ in range(clients)
        ]
        try:
            for process in processes:
                _expect(process, "ready", 120.0)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
                process.stdin.flush()
            found = [json.loads(_line(process, seconds + 120.0)) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        return found


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _line(process: "subprocess.Popen[bytes]", patience_s: float) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], patience_s)[0]:
        raise TimeoutError(f"process {process.pid} has said nothing for {patience_s:.0f} s")
    line = process.stdout.readline().decode()
    if not line:
        raise ChildProcessError(f"process {process.pid} has ended")
    return line


def _expect(process: "subprocess.Popen[bytes]", word: str, patience_s: float) -> None:
    line = _line(process, patience_s).strip()
    assert line == word, line


def returned_s(scratch: Path) -> float:
    """How long after a kill -9 of a process that holds all slots another process has one."""
    from threefs.env.host_slots import HostSlots

    path = scratch / "slots"
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, env=environment())
    slots = HostSlots(path, 8)
    try:
        _expect(holder, "ready", 60.0)
        if slots.take() is not None:
            raise AssertionError("the holder has not taken all")
        holder.send_signal(signal.SIGKILL)
        began = time.monotonic()
        while slots.take() is None:
            time.sleep(0.001)
        return time.monotonic() - began
    finally:
        holder.kill()
        holder.communicate()
        slots.close()


def _summary(found: Sequence[dict[str, Any]], line: float) -> dict[str, Any]:
    total = sum(each["bytes_per_s"] for each in found)
    return {
        "goodput_bytes_per_s": total,
        "goodput_over_line": total / line,
        "least_over_most": min(each["bytes"] for each in found) / max(each["bytes"] for each in found),
        "failed_batches": sum(each["failed"] for each in found),
        "longest_batch_s": max(each["longest_batch_s"] for each in found),
        "median_batch_s": statistics.median(each["median_batch_s"] for each in found),
        "stalls": sum(each["stalls"] for each in found),
        "limit": max(each["limit"] for each in found),
        "waited": sum(each["grants"]["granted"] for each in found if each["grants"]),
        "client_peak_over_setting": max(each["peak_bytes"] for each in found) / memory_setting_bytes("client"),
    }


def measure(bed: Testbed, budgets: Sequence[int], tell: Any) -> dict[str, Any]:
    """Rounds in turns: off, on with the default budget, and with others."""
    shape = bed.shape
    default = threefs_client.Options().receive_senders
    cases = {"off": 0, "on": default, **{f"on_{budget}": budget for budget in budgets if budget != default}}
    bed.limit(True)
    line = statistics.median(bed.line_bytes_per_s() for _ in range(3))
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for number in range(shape.rounds):
        for name, senders in cases.items():
            found = bed.read(shape.clients, shape.services, senders, shape.seconds, f"{name}-{number}")
            summary = _summary(found, line)
            rounds[name].append(summary)
            tell(f"round {number + 1}, {name}: {json.dumps(summary)}")
    storage_peak = max(peak_bytes(pid) for pid in bed.senders) / memory_setting_bytes("storage")
    return {"line_bytes_per_s": line, "rounds": rounds, "storage_peak_over_setting": storage_peak}


def alone(bed: Testbed, tell: Any) -> dict[str, Any]:
    """One client, a few services, no limit of the line: on and off in turns."""
    bed.limit(False)
    rates: dict[str, list[float]] = {"off": [], "on": []}
    cpu: dict[str, list[float]] = {"off": [], "on": []}
    default = threefs_client.Options().receive_senders
    for number in range(2 * bed.shape.rounds + 1):
        for name, senders in (("off", 0), ("on", default))[:: -1 if number % 2 else 1]:
            (found,) = bed.read(1, 8, senders, bed.shape.seconds / 2, f"alone-{name}")
            rates[name].append(found["bytes_per_s"])
            cpu[name].append(found["cpu_s"] / found["bytes"])
            assert not found["grants"] or not found["grants"]["announced"], "it was not alone"
    tell(f"alone: {rates}")
    return {
        "rates": rates,
        "cost_in_time": statistics.median(rates["off"]) / statistics.median(rates["on"]) - 1,
        "cost_in_cpu": statistics.median(cpu["on"]) / statistics.median(cpu["off"]) - 1,
    }


def ratios(found: dict[str, Any]) -> dict[str, float]:
    def median(name: str, key: str) -> float:
        middle: float = statistics.median(each[key] for each in found["incast"]["rounds"][name])
        return middle

    result = {
        "incast_goodput_over_line": median("on", "goodput_over_line"),
        "incast_on_over_off": median("on", "goodput_bytes_per_s") / median("off", "goodput_bytes_per_s"),
        "incast_batch_time_off_over_on": median("off", "median_batch_s") / median("on", "median_batch_s"),
        "grant_of_a_killed_holder_back_s": found["returned_s"],
        "incast_client_peak_over_setting": max(
            each["client_peak_over_setting"] for rounds in found["incast"]["rounds"].values() for each in rounds
        ),
        "incast_storage_peak_over_setting": found["incast"]["storage_peak_over_setting"],
    }
    for name in found["incast"]["rounds"]:
        result[f"incast_goodput_over_line_{name}"] = median(name, "goodput_over_line")
    if "alone" in found:
        result["alone_cost_in_time"] = found["alone"]["cost_in_time"]
        result["alone_cost_in_cpu"] = found["alone"]["cost_in_cpu"]
    return result


def table(found: dict[str, Any]) -> str:
    lines = [
        "| request-to-send | goodput over line | median batch | longest batch | failed batches |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, rounds in found["incast"]["rounds"].items():
        row = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        lines.append(
            f"| {name} | {row['goodput_over_line']:.2f} | {row['median_batch_s']:.2f} s | "
            f"{row['longest_batch_s']:.2f} s | {row['failed_batches']:.0f} |"
        )
    return "\n".join(lines)


@click.command()
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
@click.option("--budgets", default="4,8,16,64", show_default=True, help="Other numbers of senders to be measured.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=8.0, show_default=True, help="Of each measurement.")
@click.option("--rate", "rate_mbit", default=100, show_default=True, help="Of the line, in Mbit/s.")
@click.option("--queue", "queue_bytes", default=32 << 10, show_default=True, help="Of the port, in bytes.")
@click.option("--row", "row_bytes", default=64 << 10, show_default=True, help="Bytes of each service in a step.")
@click.option("--skip-alone", is_flag=True)
def main(file: Path | None, budgets: str, skip_alone: bool, **chosen: Any) -> None:
    """Measure request-to-send where packets are lost."""
    if reason := lacking():
        click.echo(f"incast: skipped, {reason}")
        return
    shape = Shape(**chosen)

    def tell(line: str) -> None:
        click.echo(line, err=True)

    with tempfile.TemporaryDirectory(prefix="threefs-incast-") as directory:
        found: dict[str, Any] = {"machine": platform.platform(), "cpus": os.cpu_count(), "returned_s": 0.0}
        found["returned_s"] = returned_s(Path(directory))
        try:
            with Testbed(shape, Path(directory)) as bed:
                if not skip_alone:
                    found["alone"] = alone(bed, tell)
                found["incast"] = measure(bed, [int(each) for each in budgets.split(",") if each], tell)
        except Unprivileged as error:
            click.echo(f"incast: skipped, {error}")
            return
    found["ratios"] = ratios(found)
    click.echo(table(found))
    click.echo(json.dumps(found["ratios"], indent=2))
    if file is not None:
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
