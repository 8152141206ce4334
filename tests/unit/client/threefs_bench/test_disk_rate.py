import os
from pathlib import Path

import pytest
from threefs_bench import disk_rate


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    rate, by = disk_rate.durable_write_rate(tmp_path, 4 << 20)
    assert rate > 0 and by
    assert not os.listdir(tmp_path)


def test_without_fio_it_is_measured_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rate, by = disk_rate.durable_write_rate(tmp_path, 4 << 20)
    assert rate > 0 and by == "pwrite and fdatasync"
