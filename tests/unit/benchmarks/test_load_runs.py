from pathlib import Path

import pytest

from benchmarks import load_runs
from benchmarks.load_runs import CpuMeter


def report(**job: object) -> dict[str, object]:
    nothing = {"io_bytes": 0, "runtime": 0}
    whole = {"jobname": "a", "error": 0, "read": nothing, "write": nothing, "usr_cpu": 0.0, "sys_cpu": 0.0}
    return {"jobs": [{**whole, "job_runtime": 4000, **job}]}


def test_the_side_that_was_used_counts() -> None:
    found = load_runs.sample_of(report(write={"io_bytes": 5000, "runtime": 2000}, usr_cpu=20.0, sys_cpu=5.0), 0.5)
    assert (found.amount, found.seconds, found.cpu_s) == (5000, 2.0, 1.5)
    assert load_runs.operations(found, 100).amount == 50


def test_services_cost_what_the_report_says() -> None:
    services = {"services": {"all": {"cpu_s": 0.25}}}
    assert load_runs.sample_of({**report(read={"io_bytes": 1, "runtime": 1}), **services}, None).cpu_s == 0.25


def test_a_job_that_failed_is_an_error_in_words() -> None:
    with pytest.raises(OSError, match="job a: error 5 Corrupt"):
        load_runs.sample_of(report(error=5, threefs={"error": "Corrupt: block"}), None)


@pytest.mark.slow
def test_a_directory_is_measured_by_either_program(tmp_path: Path) -> None:
    options = ["--name=a", "--rw=write", "--bs=64k", "--size=1m", "--fsync=4"]
    found = [load_runs.posix_job(tmp_path, options, servers=CpuMeter([]))]
    found += [load_runs.threefs_bench(["--ioengine=posix", f"--directory={tmp_path}", *options])]
    assert [sample.amount for sample in found] == [1 << 20, 1 << 20]


@pytest.mark.slow
def test_a_program_that_refuses_says_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nearest one is 'iodepth'"):
        load_runs.threefs_bench(["--name=a", "--iodept=4"])
