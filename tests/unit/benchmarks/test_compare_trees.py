"""How figures of two trees are compared. What is measured is what `make bench-meta` and `make bench-smoke` write."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.compare_trees import change, main, medians, rows_of, table

CLIENT = {"client": [{"what": "create", "in_flight": 64, "per_s": 2000.0, "client_us": 100.0, "server_us": 50.0}]}
MOUNT = {"mount": {"medians": {"threefs": {"stat_p4": {"per_s": 9000.0, "cpu_s_per_1000": 0.2}}}}}
SMOKE = {"creates_per_s": 3000.0, "creates_cpu_s_per_1000": 0.4, "raw_tcp_gib_per_s": 3.0, "rounds": 5}


def test_rates_and_cpu_times_are_found_in_what_each_part_writes() -> None:
    assert rows_of("client", CLIENT) == {
        "client: create, 64 in flight": 2000.0,
        "client: create, 64 in flight, cpu µs": 150.0,
    }
    assert rows_of("mount", MOUNT) == {"mount: stat_p4": 9000.0, "mount: stat_p4, cpu s per 1000": 0.2}
    assert rows_of("mount", {"mount": {"failures": {"threefs": "no /dev/fuse"}}}) == {}
    assert set(rows_of("smoke", SMOKE)) == {"smoke: creates_per_s", "smoke: creates_cpu_s_per_1000"}


def test_more_is_better_except_of_cpu_time() -> None:
    assert change("client: create", 100.0, 90.0) == pytest.approx(-0.1)
    assert change("client: create, cpu µs", 90.0, 100.0) == pytest.approx(-0.1)


def test_medians_are_of_each_row_and_what_is_slower_is_marked() -> None:
    old = medians([{"a": 1.0, "b": 10.0}, {"a": 3.0}, {"a": 2.0}])
    assert old == {"a": 2.0, "b": 10.0}
    shown = table({**old, "gone": 1.0}, {"a": 1.8, "b": 9.7})
    assert "| a | 2 | 1.8 | -10.0% **slower** |" in shown and "| b | 10 | 9.7 | -3.0% |" in shown
    assert shown.endswith("alone: gone\n")


def test_the_trees_take_turns(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "found.json"
    for tree, rate in ((old, 100), (new, 200)):
        tree.mkdir()
        recipe = f"""@echo {tree.name} >> {tmp_path}/turns; echo '{{"creates_per_s": {rate}}}' > $(JSON)"""
        (tree / "Makefile").write_text(f"bench-smoke:\n\t{recipe}\n", encoding="utf-8")
    done = CliRunner().invoke(main, [str(old), str(new), "--parts", "smoke", "--rounds", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "turns").read_text(encoding="utf-8").split() == ["old", "new", "new", "old"]
    assert "| smoke: creates_per_s | 100 | 200 | +100.0% |" in done.output
    assert json.loads(file.read_text(encoding="utf-8"))["new"] == [{"smoke: creates_per_s": 200}] * 2
    assert "none of" in CliRunner().invoke(main, [str(old), "--parts", "speed"]).output
