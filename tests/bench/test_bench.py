"""The parts of `make bench-meta` that need no quiet machine."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_bench.metadata_rates import Figure

from tests.bench import __main__ as bench
from tests.bench import clients, engines, failover
from tests.harness.etcd import needs_etcd


def test_a_part_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(bench.main, ["--only", "mount,nothing"])
    assert result.exit_code == 2 and "nothing is none of" in result.output


def test_without_engines_and_mounts_the_reasons_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "lacking", lambda: "there is no /dev/fuse here")
    monkeypatch.setattr(failover, "lacking", lambda engine: f"no {engine} on this machine")
    file = tmp_path / "meta.json"
    result = CliRunner().invoke(bench.main, ["--only", "mount,failover", "--json", str(file), "--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert found["mount"]["failures"] == {"threefs": "there is no /dev/fuse here"}
    assert found["failover"]["etcd"] == {"failure": "no etcd on this machine"}
    assert "Not measured: there is no /dev/fuse here." in result.output
    assert "| postgresql | not measured: no postgresql on this machine |" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["meta.json"]


def test_medians_are_those_of_each_figure() -> None:
    rounds = [Figure("stat", 64, 100 + n, per_s, us, 2 * us) for n, (per_s, us) in enumerate([(5, 9), (1, 1), (3, 2)])]
    middle = clients.median(rounds)
    assert middle == Figure("stat", 64, 100, 3, 2, 4)
    assert "| stat | 64 | 3 | 2.0 µs | 4.0 µs |" in clients.table([middle])


def test_a_fault_is_suffered_and_nothing_is_lost(tmp_path: Path) -> None:
    needs_etcd()
    with failover.ready("etcd", tmp_path) as cluster:
        fault = cluster.faults[0]
        seen = failover.suffered(cluster.url, fault)
    assert (fault.name, seen.errors, seen.lost) == ("meta service killed", [], 0)
    assert seen.calls >= failover.WORKERS and seen.service_back_s > 0
    line = failover.table({"etcd": {fault.name: failover.summary([seen])}}).splitlines()[-1]
    assert line.startswith("| etcd | meta service killed |") and line.endswith("| 0 | 0 |")


def test_engines_that_are_measured_have_rows() -> None:
    rate = {"what": "get", "in_flight": 1, "per_s": 1200.0, "p50_ms": 0.5, "p99_ms": 2.0, "cpu_us": 1500.0}
    rows = engines.table({"rocks": [rate], "etcd": {"failure": "no etcd"}}).splitlines()[-2:]
    assert rows == ["| rocks | get | 1 | 1,200 | 0.50 ms | 2.00 ms | 1,500 µs |", "| etcd | not measured: no etcd |"]
