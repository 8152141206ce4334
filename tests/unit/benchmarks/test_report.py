from pathlib import Path

import click
import pytest

from benchmarks import report
from benchmarks.measurements import MIB, Load, Measurements, Sample


def measured() -> Measurements:
    found = Measurements()
    for name, rate in (("write_1m", 3), ("fio_write_1m", 10)):
        found.add(Load(name, f"{name} in words", "read back"), Sample(rate * MIB, 1.0, 0.5))
    found.left_out["peers"] = "there is no harness"
    return found


def test_people_see_figures_rows_and_what_is_missing() -> None:
    lines = report.as_markdown(measured()).splitlines()
    assert "| `write_1m_over_fio` | 0.9 | ≥ 0.8 | yes |" in lines
    assert "| `write_1m_cpu_s_per_gib` | 171 | ≤ 2.5 | no |" in lines
    assert "| `write_1m` | write_1m in words | 3 MiB/s | 0% | 171 s/GiB | 1 | read back |" in lines
    assert lines[-1] == "peers: not in all rounds, there is no harness"


def test_programs_see_one_flat_object() -> None:
    found = report.as_json(measured(), size="small", loads={"load_before": 0.5})
    assert found["write_1m_mib_per_s"] == 3 and found["load_before"] == 0.5 and found["size"] == "small"
    assert not any(isinstance(value, dict | list) for value in found.values())


def test_a_report_that_could_not_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    kind = report.ReportFile()
    assert kind.convert(str(tmp_path / "x.json"), None, None) == tmp_path / "x.json"
    for wrong in (tmp_path / "absent" / "x.json", tmp_path):
        with pytest.raises(click.BadParameter):
            kind.convert(str(wrong), None, None)
