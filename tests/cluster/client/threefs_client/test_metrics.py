"""The metrics of a client of a real cluster."""

import re
import subprocess
import sys
from pathlib import Path

import threefs_client
from prometheus_client import CollectorRegistry, generate_latest
from threefs_client.metrics import ClientMetrics

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment
from tests.harness.prometheus import needs_promtool, promtool, samples


def test_a_program_sees_its_calls_in_its_own_registry(cluster: LocalCluster) -> None:
    with cluster.connect() as fs:
        fs.write_file("/before", b"x")
        registry = CollectorRegistry()
        registry.register(ClientMetrics(fs))
        before = samples(registry.collect())
        assert not any(name == "threefs_client_call_duration_seconds_count" for name, *_ in before)
        fs.write_file("/metrics-of-a-client", b"x" * 10_000)
        assert fs.read_file("/metrics-of-a-client") == b"x" * 10_000
        with fs.open("/metrics-of-a-client", "ab") as file:
            file.write(b"y")
            during = samples(registry.collect())
        after = samples(registry.collect())
        fs.remove("/metrics-of-a-client")
    assert after["threefs_client_call_duration_seconds_count", "Write"] >= 1
    assert after["threefs_client_call_duration_seconds_count", "Read"] >= 1
    assert during["threefs_client_lease_remaining_seconds",] > 0
    assert after["threefs_client_unsent_bytes",] == 0 and after["threefs_client_routing_version",] >= 1
    assert sum(value for (name, *_), value in after.items() if name == "threefs_client_connections") >= 2


async def test_it_works_for_asyncio_programs_too(cluster: LocalCluster) -> None:
    async with await threefs_client.connect_async(cluster.address) as fs:
        metrics = ClientMetrics(fs)
        await fs.exists("/")
        found = samples(metrics.collect())
    assert any(name == "threefs_client_call_duration_seconds_count" for name, *_ in found)


@needs_promtool
def test_the_linter_of_prometheus_finds_nothing(cluster: LocalCluster) -> None:
    registry = CollectorRegistry()
    with cluster.connect() as fs:
        registry.register(ClientMetrics(fs))
        fs.exists("/")
        assert promtool("check", "metrics", text=generate_latest(registry).decode()) == ""


def test_the_example_of_the_page_runs(cluster: LocalCluster) -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "metrics.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.+?)```", page, re.DOTALL)
    assert example is not None
    shown = "from prometheus_client import generate_latest\nprint(generate_latest(REGISTRY).decode())\n"
    program = example[1].replace("threefs://127.0.0.1:7000", cluster.address).replace("9110", "0")
    program = program.replace("REGISTRY.unregister", f"{shown}REGISTRY.unregister") + "\nfs.close()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "threefs_client_routing_version" in done.stdout
