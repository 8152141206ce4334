import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from threefs_bench.load import fio_report, job_file
from threefs_bench.load.fio_report import Entry
from threefs_bench.load.runner import Run
from threefs_bench.load.tally import Result, Spread, Tally

from threefs.errors import InvalidArgument

TEXT = """
[global]
size=1m
group_reporting
[a]
rw=randrw
iodepth=32
numjobs=2
[b]
rw=write
[c]
new_group
rw=read
"""


def result(operations: int = 1000, kind: str = "read") -> Result:
    tally = Tally()
    for number in range(operations):
        tally.add(kind, 1.0, 1.0 + (number + 1) * 1e-5, 1, 4096)
    tally.add("write", 1.0, 4.5, 1, 8192)
    tally.add("sync", 1.0, 1.25, 1, 0)
    found = Result(runtime_ms=2000.0, process_ms=2000.0, user_s=0.5, system_s=0.25, switches=7)
    found.add_tally(tally)
    found.rates[kind] = Spread()
    for rate in (400.0, 600.0):
        found.rates[kind].add(rate)
    return found


def entries() -> list[Entry]:
    jobs = job_file.parse_text(TEXT, "x", {"ioengine": "posix"})
    return fio_report.entries(jobs, Run([[result(), result()], [result()], [result()]]))


def test_a_group_has_one_entry() -> None:
    found = entries()
    assert [(entry.job.name, entry.group, entry.processes) for entry in found] == [("a", 0, 3), ("c", 1, 1)]
    assert found[0].result.operations == 3 * 1001 and found[0].result.process_ms == 6000.0


def test_without_group_reporting_each_process_has_one() -> None:
    jobs = job_file.parse_text(TEXT.replace("group_reporting", ""), "x", {"ioengine": "posix"})
    found = fio_report.entries(jobs, Run([[result(), result()], [result()], []]))
    assert [entry.job.name for entry in found] == ["a", "a", "b"], "the last one never ran"


def test_units_are_those_of_fio() -> None:
    job = fio_report.job_json(entries()[1], bins=False)
    read = job["read"]
    assert (read["io_bytes"], read["io_kbytes"], read["total_ios"], read["runtime"]) == (4096000, 4000, 1000, 2000)
    assert (read["bw_bytes"], read["bw"], read["iops"]) == (2048000, 2000, 500.0)
    assert (read["iops_min"], read["iops_max"], read["iops_mean"], read["iops_samples"]) == (400, 600, 500.0, 2)
    assert read["clat_ns"]["N"] == 1000 and read["clat_ns"]["percentile"]["50.000000"] == pytest.approx(5e6, rel=1e-2)
    assert job["usr_cpu"] == 25.0 and job["sys_cpu"] == 12.5 and job["job_runtime"] == 2000 and job["ctx"] == 7
    assert job["sync"]["total_ios"] == 1 and job["sync"]["lat_ns"]["max"] == 250_000_000
    assert job["write"]["clat_ns"]["max"] == pytest.approx(3.5e9, abs=2)
    assert job["job options"] == {"name": "c", "new_group": "1", "rw": "read"}
    assert job["latency_ms"][">=2000"] == pytest.approx(100 / 1001) and job["latency_us"]["20"] > 0
    shares = [share for unit in ("latency_ns", "latency_us", "latency_ms") for share in job[unit].values()]
    assert sum(shares) == pytest.approx(100.0)


def test_depths_are_in_fio_s_steps() -> None:
    job = fio_report.job_json(entries()[0], bins=False)
    assert job["iodepth_level"]["32"] == 100.0 and sum(job["iodepth_level"].values()) == 100.0
    assert job["iodepth_submit"]["4"] == 100.0 and job["latency_depth"] == 32
    assert fio_report._level(64, (1, 2, 4, 8, 16, 32), ">=64")[">=64"] == 100.0
    assert fio_report._level(256, (0, 4, 8, 16, 32, 64), ">=64")[">=64"] == 100.0


def test_the_cost_of_client_and_services() -> None:
    found = fio_report.document(entries(), [{"meta": 1.0, "storage": 2.0}, {"storage": 1.0}], 0, bins=False)
    transferred, operations = 4 * (1000 * 4096 + 8192), 4 * 1001
    assert found["services"]["all"]["cpu_s"] == 4.0 and found["services"]["storage"]["cpu_s"] == 3.0
    assert found["services"]["all"]["cpu_s_per_gib"] == pytest.approx(4.0 * (1 << 30) / transferred)
    assert found["services"]["all"]["cpu_s_per_1000"] == pytest.approx(4000 / operations)
    assert found["jobs"][1]["threefs"]["cpu_s"] == 0.75 and found["disk_util"] == []
    assert fio_report.document(entries(), [{}], 0, bins=False)["services"] == {}


def test_names_are_in_the_directions_of_fio() -> None:
    found = Result(runtime_ms=1000.0, process_ms=1000.0)
    tally = Tally()
    for kind, times in (("stat", 3), ("list", 2), ("create", 4), ("rename", 1), ("remove", 1)):
        for _ in range(times):
            tally.add(kind, 1.0, 1.001, 1, 0)
    found.add_tally(tally)
    assert fio_report.direction_json(found, "read", bins=False)["total_ios"] == 5
    assert fio_report.direction_json(found, "write", bins=False)["iops"] == 6.0


def test_reads_that_only_check_have_a_time_of_their_own() -> None:
    found = result(100, "verify")
    found.verify_ms = 500.0
    read = fio_report.direction_json(found, "read", bins=False)
    assert (read["total_ios"], read["runtime"], read["iops"]) == (100, 500, 200.0)
    assert found.operations == 1 and found.bytes == 8192


def test_an_entry_comes_back_from_json() -> None:
    made = entries()[0]
    same = Entry.from_json(json.loads(json.dumps(made.as_json())), "h:1")
    assert same.host == "h:1" and same.as_json() == made.as_json()
    job = fio_report.job_json(same, bins=False)
    assert (job["hostname"], job["port"]) == ("h", 1)
    with pytest.raises(InvalidArgument):
        Entry.from_json({"job": 3}, "h")


#: What fio 3.33 says for `--rw=randrw --iodepth=4 --fsync=8 --output-format=json+`.
FIO_JOB = [
    "jobname",
    "groupid",
    "error",
    "eta",
    "elapsed",
    "read",
    "write",
    "trim",
    "sync",
    "job_runtime",
    "usr_cpu",
    "sys_cpu",
    "ctx",
    "majf",
    "minf",
    "job options",
    *["iodepth_level", "iodepth_submit", "iodepth_complete", "latency_ns", "latency_us", "latency_ms"],
    *["latency_depth", "latency_target", "latency_percentile", "latency_window"],
]
FIO_DIRECTION = [
    "io_bytes",
    "io_kbytes",
    "bw_bytes",
    "bw",
    "iops",
    "runtime",
    "total_ios",
    "short_ios",
    "drop_ios",
    "slat_ns",
    "clat_ns",
    "lat_ns",
    "bw_min",
    "bw_max",
    "bw_agg",
    "bw_mean",
    "bw_dev",
    "bw_samples",
    "iops_min",
    "iops_max",
    "iops_mean",
    "iops_stddev",
    "iops_samples",
]


def test_keys_are_those_of_fio() -> None:
    found = fio_report.document(entries(), [], 1_795_439_062_414_000_000, bins=True)
    assert {"fio version", "timestamp", "timestamp_ms", "time", "jobs", "disk_util"} <= set(found)
    assert (found["timestamp_ms"], found["time"]) == (1795439062414, "Mon Nov 23 13:04:22 2026")
    assert found["global options"] == {"ioengine": "posix", "size": "1m", "group_reporting": "1"}
    job = found["jobs"][0]
    assert set(job) == {*FIO_JOB, "threefs"} and set(job["trim"]) == set(job["read"]) == set(FIO_DIRECTION)
    assert list(job["read"]["clat_ns"]) == ["min", "max", "mean", "stddev", "N", "percentile", "bins"]
    assert "client_stats" in fio_report.document(entries(), [], 0, bins=False, remote=True)


def shape(value: Any) -> Any:
    """The keys and types of a document; keys that are numbers are one."""
    if isinstance(value, dict):
        return {("#" if key.replace(".", "").isdigit() else key): shape(part) for key, part in value.items()}
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_job_of_fio_has_no_key_that_ours_lacks(tmp_path: Path) -> None:
    command = ["fio", "--name=a", f"--directory={tmp_path}", "--rw=randrw", "--bs=4k", "--size=256k", "--fsync=8"]
    done = subprocess.run([*command, "--output-format=json+"], capture_output=True, check=True, timeout=60)
    theirs = shape(json.loads(done.stdout)["jobs"][0])
    ours = shape(fio_report.job_json(entries()[1], bins=True))
    for options in (theirs, ours):
        options["job options"] = {}
    ours = copy.deepcopy(ours)
    del ours["threefs"]
    assert ours == theirs


@pytest.mark.skipif(shutil.which("fio_jsonplus_clat2csv") is None, reason="the tools of fio are not installed")
def test_a_tool_of_fio_reads_the_bins(tmp_path: Path) -> None:
    source, target = tmp_path / "x.json", tmp_path / "x.csv"
    source.write_text(json.dumps(fio_report.document(entries(), [], 0, bins=True)))
    tool = ["fio_jsonplus_clat2csv", str(source), str(target)]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=60)
    if "No module named 'six'" in done.stderr:
        pytest.skip("that tool needs the module six")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*tool, "--validate"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("validated") == 2
