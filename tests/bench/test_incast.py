"""The parts of `make bench-incast` that need no quiet machine and no root."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench import incast


def test_without_root_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(incast, "lacking", lambda: "network namespaces need root")
    result = CliRunner().invoke(incast.main, ["--json", str(tmp_path / "incast.json")])
    assert result.exit_code == 0 and "skipped, network namespaces need root" in result.output
    assert not list(tmp_path.iterdir())


def test_ratios_are_medians_of_the_rounds() -> None:
    def one(rate: float, batch_s: float) -> dict[str, float]:
        return {
            "goodput_bytes_per_s": rate,
            "goodput_over_line": rate / 100,
            "failed_batches": 0.0,
            "median_batch_s": batch_s,
            "longest_batch_s": 2 * batch_s,
            "client_peak_over_setting": rate / 1000,
        }

    rounds = {"off": [one(40, 2), one(60, 1), one(50, 3)], "on": [one(90, 1), one(95, 0.5), one(10, 0.8)]}
    found = {"returned_s": 0.01, "incast": {"rounds": rounds, "storage_peak_over_setting": 0.3}}
    ratios = incast.ratios(found)
    assert ratios["incast_goodput_over_line"] == 0.9 and ratios["incast_on_over_off"] == 1.8
    assert ratios["incast_batch_time_off_over_on"] == 2.5
    assert (ratios["incast_client_peak_over_setting"], ratios["incast_storage_peak_over_setting"]) == (0.095, 0.3)
    assert "| on | 0.90 | 0.80 s | 1.60 s | 0 |" in incast.table(found)
    json.dumps(ratios)


def test_slots_of_a_killed_process_come_back(tmp_path: Path) -> None:
    assert incast.returned_s(tmp_path) >= 0
