from pathlib import Path

import pytest
from threefs_bench import mount_comparison
from threefs_bench.mount import Row
from threefs_bench.mount_comparison import Comparison
from threefs_bench.peer_harness import Harness

from tests.harness.mounts import need_mounts


def row(per_s: float, cpu_s: float) -> Row:
    return Row("create_p1", per_s, 1.0, 2.0, cpu_s, 100)


def test_the_table_has_medians_and_reasons() -> None:
    found = Comparison({"threefs": [[row(1000, 0.1)], [row(3000, 0.3)], [row(2000, 0.9)]], "other": [[row(7, 1.5)]]})
    found.failures["third"] = "it does not start"
    assert mount_comparison.table(found).splitlines() == [
        "| operation | threefs | other |",
        "|---|---:|---:|",
        "| create_p1 | 2,000/s, 0.30 s | 7/s, 1.50 s |",
        "",
        "third: no figures, it does not start",
    ]


def test_the_table_says_which_systems_were_not_measured_in_all_rounds() -> None:
    found = Comparison({"other": [[row(7, 1.5)]]}, {"other": "it does not start"})
    assert mount_comparison.table(found).splitlines()[-1] == "other: not in all rounds, it does not start"


def test_a_peer_that_cannot_be_installed_leaves_the_others_to_go_on(tmp_path: Path) -> None:
    """The harness has no programs at all."""
    lines: list[str] = []
    harness = Harness(tmp_path / "none", tmp_path / "work", quick=True, timeout_s=10)
    found = mount_comparison.measure(("one", "two"), harness, tmp_path / "nowhere", lines.append, rounds=2, files=1)
    assert set(found.failures) == {"one", "two", "threefs"} and not found.rounds
    assert "round 2 of 2: threefs" in lines, "what failed in one round is tried in the next"
    assert "round 1 of 2: one" not in lines
    assert "No such file" in found.failures["one"]


@pytest.mark.timeout(300)  # with 64 processes at once, and pauses
def test_threefs_is_measured_through_a_mount(tmp_path: Path) -> None:
    need_mounts()
    found = mount_comparison.measure((), None, tmp_path, print, rounds=1, files=20)
    assert not found.failures
    assert {"create_p1", "unlink_p4", "unlink_p64_apart"} <= set(found.medians()["threefs"])
    assert not list(tmp_path.iterdir())
