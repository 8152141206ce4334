"""Every process of a cluster shows its metrics, by the rules of Prometheus."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_backup.reporter import Reporter
from threefs_client.metrics import ClientMetrics
from threefs_mount.metrics import mount_metrics

from tests.harness.cluster import LocalCluster
from tests.harness.prometheus import families, generate_text, needs_promtool, promtool, sample_names, scrape
from threefs.telemetry.histogram import Histogram

ROOT = Path(__file__).resolve().parents[2]
WELL_S = 30.0


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """By role, what a scrape of its process gives after files were written and read."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), metrics=True) as cluster, cluster.connect() as fs:
        fs.mkdir("/d")
        for number in range(4):
            fs.write_file(f"/d/{number}", b"x" * 100_000)
            assert fs.read_file(f"/d/{number}") == b"x" * 100_000
        programs = {"meta": cluster.meta, "storage": cluster.storage[1]}
        found = {role: scrape(program.settings["metrics_port"]) for role, program in programs.items()}
        manager = scrape_once_well(cluster.manager.settings["metrics_port"])
        client = generate_text(ClientMetrics(fs).collect())
        yield found | {"manager": manager, "client": client, "backup": of_a_backup(), "mount": of_a_mount()}


def of_a_backup() -> str:
    """Of one that copies one store."""
    follower = SimpleNamespace(role="meta", as_of_ns=1, failure="", length_bytes=7)
    return generate_text(Reporter("b", cast(Any, None), cast(Any, [follower])).metrics())


def of_a_mount() -> str:
    """What one shows beside the metrics of its client."""
    lookups = Histogram()
    lookups.observe(0.25)
    session = SimpleNamespace(durations={"lookup": lookups}, requests_in_flight=0)
    return generate_text(mount_metrics(session, SimpleNamespace(unsent_bytes=0, open_count=0)))


def scrape_once_well(port: int) -> str:
    """Heartbeats come late while the processes of a cluster start on a busy machine, and the manager says so. Nor is
    it a failure if the disk of this machine is nearly full."""
    deadline = time.monotonic() + WELL_S
    while reasons := reasons_of_health(text := scrape(port)) - {"disk_nearly_full", "store_nearly_full"}:
        assert time.monotonic() < deadline, f"after {WELL_S:g} s health still gives {', '.join(sorted(reasons))}"
        time.sleep(0.1)
    return text


def reasons_of_health(text: str) -> set[str]:
    return {sample.labels["reason"] for sample in families(text)["threefs_health_reasons"].samples}


def test_every_process_shows_what_is_common_to_all(scraped: dict[str, str]) -> None:
    for text in (scraped[role] for role in ("manager", "meta", "storage")):
        common = {"threefs_build_info", "threefs_event_loop_lag_seconds_bucket", "process_resident_memory_bytes"}
        assert common | {"threefs_rpc_calls_total", "threefs_rpc_call_duration_seconds_count"} <= sample_names(text)


@needs_promtool
@pytest.mark.parametrize("role", ["manager", "meta", "storage", "client", "mount", "backup"])
def test_the_linter_of_prometheus_finds_nothing(scraped: dict[str, str], role: str) -> None:
    assert promtool("check", "metrics", text=scraped[role]) == ""


def test_the_metrics_say_what_has_happened(scraped: dict[str, str]) -> None:
    manager, meta, storage = (families(scraped[role]) for role in ("manager", "meta", "storage"))
    assert [sample.value for sample in manager["threefs_manager_primary"].samples] == [1]
    severity = 1 if reasons_of_health(scraped["manager"]) else 0
    assert [sample.value for sample in manager["threefs_health_status"].samples] == [severity]
    beats = [
        sample.value
        for sample in manager["threefs_rpc_call_duration_seconds"].samples
        if sample.name.endswith("_count") and sample.labels["method"] == "Heartbeat"
    ]
    assert sum(beats) > 0
    assert sum(sample.value for sample in storage["threefs_target_chunks"].samples) > 0
    writes = [
        sample.value
        for sample in storage["threefs_rpc_call_duration_seconds"].samples
        if sample.name.endswith("_count") and sample.labels["method"] in ("Write", "ForwardVersions", "StageAhead")
    ]
    assert sum(writes) > 0
    assert sum(sample.value for sample in meta["threefs_meta_transactions"].samples) > 0


def test_embedded_stores_show_the_room_on_their_disks(scraped: dict[str, str]) -> None:
    for role in ("manager", "meta"):
        assert {"threefs_store_disk_free_bytes", "threefs_store_disk_capacity_bytes"} <= sample_names(scraped[role])


def names_of(text: str) -> set[str]:
    """As docs/metrics.md names them: of a histogram without the ends of its samples."""
    return {name + "_total" if each.type == "counter" else name for name, each in families(text).items()}


def test_the_page_names_every_metric_and_no_other(scraped: dict[str, str]) -> None:
    found = {name for text in scraped.values() for name in names_of(text) if name.startswith("threefs_")}
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(threefs_\w+)` \|", page, re.MULTILINE)) == found


def queries_of_dashboards() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]


def queries_of_rules() -> Iterator[tuple[str, str]]:
    rules = (ROOT / "deploy" / "prometheus" / "threefs.rules.yml").read_text(encoding="utf-8")
    yield from re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", rules)


def test_dashboards_and_rules_use_metrics_that_exist(scraped: dict[str, str]) -> None:
    histograms = {n for text in scraped.values() for n, each in families(text).items() if each.type == "histogram"}
    known = {name for text in scraped.values() for name in names_of(text)} - histograms
    known |= {name + end for name in histograms for end in ("_bucket", "_count", "_sum")}
    queries = [*queries_of_dashboards(), *queries_of_rules()]
    assert len(queries) > 50
    wrong = [
        f"{where}: {name}"
        for where, query in queries
        for name in re.findall(r"\b(?:threefs|process|python)_\w+", query)
        if name not in known
    ]
    assert not wrong, "\n".join(wrong)


@needs_promtool
def test_every_query_of_a_dashboard_can_be_parsed(tmp_path: Path) -> None:
    rules = [
        {"record": "query", "expr": query.replace("$__rate_interval", "5m")} for _, query in queries_of_dashboards()
    ]
    file = tmp_path / "queries.json"  # JSON is YAML, too
    groups = [{"name": str(number), "rules": [rule]} for number, rule in enumerate(rules)]
    file.write_text(json.dumps({"groups": groups}), encoding="utf-8")
    assert promtool("check", "rules", file) == ""


def test_the_panels_of_a_dashboard_do_not_overlap() -> None:
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in dashboard["panels"])
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def test_the_configuration_scrapes_each_kind_of_process() -> None:
    """A program with a client library has a job of its own, if it shows metrics."""
    configuration = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    jobs = re.findall(r"job_name: threefs-(\w+)", configuration)
    assert jobs == ["manager", "meta", "storage", "mount", "backup"]


@needs_promtool
def test_the_configuration_and_the_rules_are_sound_and_each_rule_is_tested() -> None:
    folder = ROOT / "deploy" / "prometheus"
    assert promtool("check", "config", folder / "prometheus.yml") == ""
    assert promtool("test", "rules", folder / "threefs.rules.test.yml") == ""
    tests = (folder / "threefs.rules.test.yml").read_text(encoding="utf-8")
    assert [alert for alert, _ in queries_of_rules() if alert not in tests] == []
