from pathlib import Path

import pytest

from benchmarks import plots
from benchmarks.measurements import Load, Measurements, Sample

pytest.importorskip("matplotlib")
_PNG = b"\x89PNG"


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert plots.write(Measurements(), tmp_path) == []


@pytest.mark.slow
def test_figures_and_systems_are_drawn(tmp_path: Path) -> None:
    found = Measurements()
    for name in ("write_1m", "fio_write_1m", "mount_threefs_seq_write_1m", "mount_one_seq_write_1m"):
        found.add(Load(name, name, ""), Sample(1 << 20, 1.0, 1.0))
    paths = plots.write(found, tmp_path / "plots")
    assert [path.name for path in paths] == ["goals.png", "systems.png"]
    assert all(path.read_bytes().startswith(_PNG) for path in paths)
