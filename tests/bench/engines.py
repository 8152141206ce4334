"""Each engine that can be started here: transactions of an empty store, made durable as in real use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop
from threefs_bench import engines

from tests.harness import etcd, postgres
from tests.harness.etcd import EtcdCluster
from tests.harness.postgres import PostgresServer

ENGINES = ("rocks", "etcd", "postgresql")
ETCD_MEMBERS = 3


def lacking(engine: str) -> str:
    """Why it cannot be measured here."""
    return {"etcd": etcd.lacking, "postgresql": postgres.lacking}.get(engine, str)()


@contextmanager
def store(engine: str, scratch: Path) -> Iterator[str]:
    """The URL of an empty one."""
    if engine == "etcd":
        with EtcdCluster(scratch / "etcd", ETCD_MEMBERS) as cluster:
            yield f"{cluster.url}/bench"
    elif engine == "postgresql":
        with PostgresServer(fsync=True) as server:
            yield server.schema("bench")
    else:
        yield f"rocks://{scratch.absolute()}/rocks"


def measure(scratch: Path, tell: Callable[[str], None], *, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for engine in ENGINES:
        if reason := lacking(engine):
            found[engine] = {"failure": reason}
            continue
        tell(f"engine {engine}")
        with store(engine, scratch) as url:
            rates = uvloop.run(engines.measure(url, seconds=seconds))
        found[engine] = [{name: value for name, value in asdict(rate).items() if name != "engine"} for rate in rates]
    return found


def table(found: dict[str, Any]) -> str:
    lines = [
        "| engine | transaction | in flight | per second | p50 | p99 | CPU |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for engine, rates in found.items():
        if "failure" in rates:
            lines.append(f"| {engine} | not measured: {rates['failure']} |")
            continue
        lines += [
            f"| {engine} | {rate['what']} | {rate['in_flight']} | {rate['per_s']:,.0f} | {rate['p50_ms']:.2f} ms "
            f"| {rate['p99_ms']:.2f} ms | {rate['cpu_us']:,.0f} µs |"
            for rate in rates
        ]
    return "\n".join(lines) + "\n"
