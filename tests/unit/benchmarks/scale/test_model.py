"""A tiny cluster: what the model says follows from what it was given."""

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.scale import __main__ as scale
from benchmarks.scale import calibration
from benchmarks.scale.calibration import Calibration
from benchmarks.scale.fabric import Links
from benchmarks.scale.model import Scenario, simulate

COSTS = Calibration(50e-6, 2e-10, 50e-6, 2e-10, 100e-6, 0.3, 3e9)
TINY = Scenario(
    clients=8,
    reads_in_flight=16,
    nodes=6,
    disks=2,
    senders=4,
    links=Links(hosts_per_leaf=4, spines=4),
    measured=12.0,
)


def but(**changes: object) -> Scenario:
    return dataclasses.replace(TINY, **changes)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_figures() -> None:
    assert simulate(TINY, COSTS) == simulate(TINY, COSTS)
    assert simulate(TINY, COSTS) != simulate(but(seed=2), COSTS)


@pytest.mark.parametrize("senders", [None, 1, 4])
@pytest.mark.parametrize("placement", ["solver", "random"])
def test_nothing_is_faster_than_its_scarcest_part(senders: int | None, placement: str) -> None:
    found = simulate(but(senders=senders, placement=placement), COSTS)
    assert 0 < found.share <= 1.05, "what was in flight at the begin may end in the time measured"
    assert 0 < found.average_disk <= found.busiest_disk + 1e-9 and found.busiest_disk <= 1 + 1e-9
    assert 0 < found.p50_ms <= found.p99_ms and found.dropped == 0


def test_slow_disks_are_the_limit() -> None:
    slow = dataclasses.replace(COSTS, disk_bytes_per_s=1e8)
    found = simulate(TINY, slow)
    assert found.limit_gib_per_s == pytest.approx(12 * 1e8 / (1 << 30))
    assert found.share == pytest.approx(1.0, abs=0.1)


def test_with_a_dead_node_the_others_do_its_reads() -> None:
    """The clients are the limit here, so what they read stays the same."""
    few = but(reads_in_flight=2)
    healthy, degraded = (simulate(dataclasses.replace(few, dead_nodes=dead), COSTS) for dead in (0, 1))
    assert degraded.average_disk > healthy.average_disk
    assert degraded.limit_gib_per_s == pytest.approx(healthy.limit_gib_per_s * 5 / 6)


def test_one_sender_at_a_time_costs_rate() -> None:
    assert simulate(but(senders=1), COSTS).gib_per_s < simulate(but(senders=8), COSTS).gib_per_s


def test_in_a_lossy_fabric_request_to_send_avoids_losses() -> None:
    links = dataclasses.replace(TINY.links, repeat_s=2e-3, room=2)
    crowd = but(clients=2, client_processes=16, reads_in_flight=64, nodes=12, links=links)
    lossy = {senders: simulate(dataclasses.replace(crowd, senders=senders), COSTS) for senders in (None, 2)}
    assert lossy[2].dropped < lossy[None].dropped


@pytest.mark.slow
def test_all_scenarios_have_a_row(tmp_path: Path) -> None:
    file, costs = tmp_path / "scale.json", tmp_path / "costs.json"
    calibration.save(COSTS, costs)
    words = ["--clients", "10", "--nodes", "6", "--calibration", str(costs), "--json", str(file)]
    result = CliRunner().invoke(scale.main, [*words, "--plots", str(tmp_path / "plots")])
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert len(found) == 13 and all(one["gib_per_s"] > 0 for one in found.values())
    assert "| 4 clients, request-to-send off |" in result.output
    assert (tmp_path / "plots" / "scale.svg").read_text(encoding="utf-8").startswith("<?xml")
