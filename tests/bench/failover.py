"""What applications notice when a meta service, or a part of the engine below, dies under load: how long the longest
call takes, whether any fails, and whether something is lost that was acknowledged."""

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import threefs_client
import uvloop

from tests.bench.engines import ETCD_MEMBERS, lacking
from tests.harness.etcd import EtcdCluster
from tests.harness.postgres import PostgresServer
from tests.harness.processes import Program
from tests.harness.shared_cluster import SharedCluster
from threefs.errors import ThreefsError

ENGINES = ("etcd", "postgresql")
METAS = 3
CLIENTS = 4
WORKERS = 8
_BEFORE_S = 1.5
_AFTER_S = 2.0
_MOST_S = 60.0
_TIMEOUT_S = 60.0
_POLL_S = 0.01


@dataclass(slots=True)
class Seen:
    """Of one fault. Times begin with the fault."""

    longest_call_s: float = 0.0
    engine_back_s: float = 0.0  # when the engine itself answered again; 0 if it was not harmed
    service_back_s: float = 0.0  # when the last of the workers had made a change again
    calls: int = 0
    errors: list[str] = field(default_factory=list)
    lost: int = 0  # acknowledged, and not there


@dataclass(slots=True)
class Fault:
    name: str
    strike: Callable[[], object]
    heal: Callable[[], object]
    engine_answers: Callable[[], bool] | None = None  # asked in a thread


@dataclass(slots=True)
class Ready:
    url: str
    faults: list[Fault]


def measure(scratch: Path, tell: Callable[[str], None], *, times: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for engine in ENGINES:
        if reason := lacking(engine):
            found[engine] = {"failure": reason}
            continue
        found[engine] = {}
        with tempfile.TemporaryDirectory(dir=scratch) as place, ready(engine, Path(place)) as made:
            for fault in made.faults:
                tell(f"{engine}: {fault.name}")
                seen = [suffered(made.url, fault) for _ in range(times)]
                found[engine][fault.name] = summary(seen)
    return found


@contextmanager
def ready(engine: str, place: Path) -> Iterator[Ready]:
    """A running cluster on that engine, and what can happen to it."""
    if engine == "etcd":
        with (
            EtcdCluster(place / "etcd", ETCD_MEMBERS) as etcd,
            _cluster(place, f"{etcd.url}/a", f"{etcd.url}/b") as made,
        ):
            made.faults.append(_of_leader(etcd))
            yield made
    else:
        with PostgresServer(fsync=True) as server, _cluster(place, server.schema("a"), server.schema("b")) as made:
            made.faults.append(_of_backend(server))
            yield made


@contextmanager
def _cluster(place: Path, manager: str, meta: str) -> Iterator[Ready]:
    with SharedCluster(place, manager, meta, managers=1, metas=METAS) as cluster:
        victim = cluster.metas[0]
        hang, wake = (partial(_send, victim, sign) for sign in (signal.SIGSTOP, signal.SIGCONT))
        faults = [Fault("meta service killed", victim.kill, victim.start), Fault("meta service stopped", hang, wake)]
        yield Ready(f"threefs://127.0.0.1:{cluster.managers[0].settings['port']}", faults)


def _send(program: Program, sign: signal.Signals) -> None:
    os.kill(program.process.pid, sign)


def _of_leader(etcd: EtcdCluster) -> Fault:
    killed = etcd.members[:0]

    def strike() -> None:
        killed.append(etcd.leader())
        killed[-1].kill()

    def heal() -> None:
        etcd.launch(killed[-1])
        etcd.wait_ready()

    return Fault("etcd leader killed", strike, heal, lambda: bool(etcd.leader()))


def _of_backend(server: PostgresServer) -> Fault:
    def strike() -> None:
        assert server.kill_backend(), "somebody is connected"

    def answers() -> bool:
        try:
            psycopg.connect(server.url, connect_timeout=5).close()
        except psycopg.Error:
            return False
        return True

    return Fault("PostgreSQL backend killed", strike, lambda: None, answers)


def suffered(url: str, fault: Fault) -> Seen:
    """One fault, under load."""
    return uvloop.run(_suffer(url, fault))


async def _suffer(url: str, fault: Fault) -> Seen:
    """Workers that make names, each the next one when the one before was acknowledged."""
    seen = Seen()
    clients = [await threefs_client.connect_async(url, timeout_s=_TIMEOUT_S) for _ in range(CLIENTS)]
    top = f"/failover-{time.monotonic_ns()}"
    await clients[0].mkdir(top)
    made: list[set[str]] = [set() for _ in range(WORKERS)]
    struck_at = 0.0
    back: dict[int, float] = {}  # worker -> when it had made something that it began after the fault
    end = asyncio.Event()

    async def work(number: int) -> None:
        fs = clients[number % CLIENTS]
        while not end.is_set():
            name = f"{number}-{len(made[number])}"
            began = time.monotonic()
            try:
                await fs.symlink("x", f"{top}/{name}")
            except ThreefsError as error:
                seen.errors.append(repr(error))
                return
            made[number].add(name)
            now = time.monotonic()
            seen.longest_call_s = max(seen.longest_call_s, now - began)
            if struck_at and began > struck_at:
                back.setdefault(number, now - struck_at)

    working = [asyncio.create_task(work(number)) for number in range(WORKERS)]
    await asyncio.sleep(_BEFORE_S)
    await asyncio.to_thread(fault.strike)
    struck_at = time.monotonic()
    if fault.engine_answers is not None:
        while not await asyncio.to_thread(fault.engine_answers):
            await asyncio.sleep(_POLL_S)
        seen.engine_back_s = time.monotonic() - struck_at
    await asyncio.sleep(_AFTER_S)
    while len(back) < WORKERS and time.monotonic() < struck_at + _MOST_S and not seen.errors:
        await asyncio.sleep(_POLL_S)
    end.set()
    await asyncio.gather(*working)
    seen.service_back_s = max(back.values(), default=_MOST_S)
    await asyncio.to_thread(fault.heal)
    there = {entry.name async for entry in clients[0].list(top)}
    seen.calls = sum(map(len, made))
    seen.lost = len(set().union(*made) - there)
    await clients[0].remove(top, recursive=True)
    for fs in clients:
        await fs.close()
    return seen


def summary(times: list[Seen]) -> dict[str, Any]:
    middle: dict[str, Any] = {
        name: round(statistics.median(getattr(one, name) for one in times), 3)
        for name in ("longest_call_s", "engine_back_s", "service_back_s")
    }
    middle["service_behind_engine_s"] = round(
        statistics.median(max(0.0, one.service_back_s - one.engine_back_s) for one in times), 3
    )
    middle |= {"errors": sum(len(one.errors) for one in times), "lost": sum(one.lost for one in times)}
    return middle | {"times": [asdict(one) for one in times]}


def table(found: dict[str, Any]) -> str:
    lines = ["| engine | what dies | longest call | service back | after the engine | errors | lost |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for engine, faults in found.items():
        if "failure" in faults:
            lines.append(f"| {engine} | not measured: {faults['failure']} |")
            continue
        lines += [
            f"| {engine} | {name} | {one['longest_call_s']:.2f} s | {one['service_back_s']:.2f} s "
            f"| {one['service_behind_engine_s']:.2f} s | {one['errors']} | {one['lost']} |"
            for name, one in faults.items()
        ]
    return "\n".join(lines) + "\n"
