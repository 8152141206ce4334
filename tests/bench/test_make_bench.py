"""One tiny round of `make bench` with real processes: every figure is there. How large it is depends on the machine."""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_mount import mountpoints

from benchmarks import __main__ as bench
from benchmarks import goals
from tests.harness.mounts import lacking

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 500

#: A harness with one other system, which is a local directory. Its loads write and read it.
PEERS = """
import os, subprocess, sys
action, name, _, place, *rest = sys.argv[1:]
if action == "up":
    if name == "broken":
        sys.exit("no such volume")
    os.makedirs(f"{place}/mnt", exist_ok=True)
if action == "exec":
    sys.exit(subprocess.run(rest[1:]).returncode)
"""
MOUNTBENCH = """
import json, os, pathlib, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert words["--only"] == "sequential,random_read,random_write,small_files,checkpoint", words
path = pathlib.Path(words["--mount"], "measured")
rows = []
for name in %r:
    content = os.urandom(1 << 20)
    begin = time.monotonic()
    path.write_bytes(content)
    assert path.read_bytes() == content
    wall_s = round(time.monotonic() - begin, 6)
    rows.append({"name": name, "unit": "MiB/s", "bytes": len(content), "ops": 1, "wall_s": wall_s, "cpu_s": 0.01})
path.unlink()
pathlib.Path(words["--json"]).write_text(json.dumps({"results": rows}))
"""
LOADS = ["seq_write_1m", "seq_read_1m_cold", "rand_read_1m_j4", "rand_read_4k_j1", "rand_read_4k_j16"]
LOADS += ["rand_write_4k_fsync32", "checkpoint_write_p8"]
LOADS += [f"small_{what}_4k_p{processes}" for what in ("write", "read") for processes in (1, 4)]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    place = tmp_path / "programs"
    place.mkdir()
    (place / "peers.py").write_text(PEERS)
    (place / "mountbench.py").write_text(MOUNTBENCH % LOADS)
    return place


@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_one_small_round_has_every_figure(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks", "--size", "small", "--rounds", "1", "--json", str(file)]
    command += ["--only", "client,mount,peers", "--peers", str(programs), "--peer", "other,broken"]
    command += ["--work", str(tmp_path / "work"), "--plots", str(tmp_path / "plots")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    missing = [key for key in expected() if key not in found]
    assert not missing, f"{missing}\n{done.stdout}"
    numbers = {name: value for name, value in found.items() if not isinstance(value, str)}
    wrong = {name: value for name, value in numbers.items() if not (math.isfinite(value) and value >= 0)}
    assert not wrong
    assert all(found[key] > 0 for key in expected())
    assert "| `read_4k_batch` |" in done.stdout
    if not lacking():
        assert "broken: not in all rounds, no such volume" in done.stdout
    assert not list((tmp_path / "work").glob("threefs-bench-*")), "nothing is left behind"


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "it can be mounted here")
@pytest.mark.parametrize(("number", "load"), [(signal.SIGTERM, "overwrite_4k"), (signal.SIGINT, "io500_easy")])
def test_a_signal_to_the_whole_group_leaves_neither_processes_nor_mounts(
    tmp_path: Path, number: signal.Signals, load: str
) -> None:
    """As by a terminal, or by `timeout`; `make` passes it on once more."""
    command = [sys.executable, "-m", "benchmarks", "--size", "small", "--rounds", "1", "--only", "mount"]
    with subprocess.Popen(
        [*command, "--work", str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as bench:
        assert bench.stderr is not None and any(line.strip() == load for line in bench.stderr)
        os.killpg(bench.pid, number)
        bench.send_signal(number)
        bench.stderr.read()
    assert bench.returncode == 128 + number
    assert not any(str(tmp_path) in mount.point for mount in mountpoints.mounts())
    assert not list(tmp_path.iterdir())
    deadline = time.monotonic() + _TIMEOUT_S
    while left := working_in(tmp_path):  # a process of fio ends with its block
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def working_in(place: Path) -> list[bytes]:
    """The command lines that name the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes())
    return [line for line in found if os.fsencode(place) in line]


#: Measured by `make bench-incast`, in a run of its own.
OF_INCAST = {
    "incast_goodput_over_line",
    "incast_on_over_off",
    "alone_cost_in_cpu",
    "alone_cost_in_time",
    "grant_of_a_killed_holder_back_s",
    "incast_client_peak_over_setting",
    "incast_storage_peak_over_setting",
}


def expected() -> set[str]:
    """The figures that this machine can measure."""
    keys = {goal.key for goal in goals.GOALS} - {"pgbench_mount_over_local", *OF_INCAST}
    if shutil.which("fio") is None:
        keys -= {"read_1m_cold_over_fio", "write_1m_over_fio"}
    if shutil.which("gcc") is None:
        keys -= {key for key in keys if key.endswith("_c") or "small_messages" in key}
    if not can_drop_caches():
        keys -= {"read_1m_cold_over_fio"}
    if lacking():
        keys = {key for key in keys if key.startswith(("read_", "write_", "manager_", "meta_", "storage_"))}
    return keys


def can_drop_caches() -> bool:
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")
    except OSError:
        return False
    return True


def test_a_group_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(bench.main, ["--only", "client,nothing"])
    assert result.exit_code == 2 and "nothing is none of client, mount, peers, database" in result.output


def test_without_a_harness_other_systems_are_left_out_with_the_reason() -> None:
    result = CliRunner().invoke(bench.main, ["--only", "peers", "--rounds", "1", "--size", "small"])
    assert result.exit_code == 0 and "PEERS= does not name a harness" in result.output
