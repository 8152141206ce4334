from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import threefs_checkpoint
import threefs_data
from numpy.typing import NDArray
from threefs_cli.demo import steps
from threefs_cli.demo.report import Report
from threefs_client import FileSystem

FILES = {f"package/{number}.py": b"line\n" * number for number in range(300)}
SAMPLES = np.arange(600 * 16, dtype=np.uint16).reshape(600, 16)
ARRAYS = steps.make_arrays(2 << 20)


@pytest.fixture(autouse=True)
def places(fs: FileSystem) -> None:
    """Each test has the root for itself."""
    for path in (steps.LIBRARY, steps.DATASET, steps.CHECKPOINTS):
        if fs.exists(path):
            fs.remove(path, recursive=True)


def broken(report: Report) -> list[str]:
    return [what for step in report.steps for what, held in step.checks if not held]


def copied(report: Report, fs: FileSystem, tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    steps.copy_in(report, fs, str(tmp_path), FILES)


def test_all_is_well(fs: FileSystem, tmp_path: Path) -> None:
    report = Report()
    copied(report, fs, tmp_path)
    steps.read_back(report, fs, FILES, "back")
    steps.pack_dataset(report, fs, SAMPLES)
    steps.read_epoch(report, fs, SAMPLES, "epoch", 0)
    steps.save_checkpoint(report, fs, ARRAYS)
    steps.load_checkpoint(report, fs, ARRAYS, "load")
    assert report.ok, broken(report)
    assert all(step.length_bytes and step.seconds and step.things for step in report.steps)


@pytest.mark.parametrize("content", [b"", b"line\nlinE\n", b"line\nline\n\0"])
def test_one_wrong_file_is_found(fs: FileSystem, tmp_path: Path, content: bytes) -> None:
    report = Report()
    copied(report, fs, tmp_path)
    fs.write_file(f"{steps.LIBRARY}/package/2.py", content)
    steps.read_back(report, fs, FILES, "back")
    assert broken(report) == ["1 files differ"]


def test_one_wrong_sample_is_found(fs: FileSystem) -> None:
    report = Report()
    changed = SAMPLES.copy()
    changed[77, 3] += 1
    threefs_data.pack(fs, (sample.data for sample in changed), steps.DATASET)
    steps.read_epoch(report, fs, SAMPLES, "epoch", 0)
    assert broken(report) == ["1 samples are wrong"]


def test_a_lost_sample_is_found(fs: FileSystem) -> None:
    report = Report()
    threefs_data.pack(fs, (sample.data for sample in SAMPLES[:-1]), steps.DATASET)
    steps.read_epoch(report, fs, SAMPLES, "epoch", 0)
    assert broken(report) == ["none lost or doubled"]


def save(fs: FileSystem, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    fs.mkdir(steps.CHECKPOINTS, parents=True)
    threefs_checkpoint.save(fs, f"{steps.CHECKPOINTS}/step-000000000002", arrays)


def test_one_wrong_bit_of_a_checkpoint_is_found(fs: FileSystem) -> None:
    report = Report()
    changed = {name: array.copy() for name, array in ARRAYS.items()}
    changed["layers.3.weight"].view(np.uint32)[5, 5] ^= 1
    save(fs, changed)
    steps.load_checkpoint(report, fs, ARRAYS, "load")
    assert broken(report) == ["bit for bit"]
    save(fs, {"other": ARRAYS["layers.0.weight"]})
    steps.load_checkpoint(report, fs, ARRAYS, "load")
    assert "names" in broken(report)
