"""The examples of docs/load-generator.md, as they stand there, and the job files of benchmarks/jobs, made small."""

import re
import shlex
from pathlib import Path

import pytest
from threefs_bench.load import command, job_file

from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT

TEXT = (ROOT / "docs" / "load-generator.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
JOB_FILES = sorted((ROOT / "benchmarks" / "jobs").glob("*.fio"))


@pytest.fixture
def place(tmp_path: Path, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    (job,) = re.findall(r"```ini\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "job.fio").write_text(job)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THREEFS_ADDRESS", cluster.address)
    return tmp_path


def test_there_are_examples() -> None:
    assert len(COMMANDS) >= 7 and all(line.startswith("threefs bench ") for line in COMMANDS)
    assert len(JOB_FILES) >= 5


@pytest.mark.parametrize("line", COMMANDS)
def test_an_example_runs(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line.replace("/mnt/data", str(place)))
    assert command.main(words[2:]) == 0, capsys.readouterr()


@pytest.mark.parametrize("file", JOB_FILES, ids=lambda file: file.stem)
def test_a_job_file_runs(file: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert job_file.read(file)
    small = re.sub(r"\b(size|runtime|ramp_time|nrfiles)=.*", _smaller, file.read_text())
    (place / file.name).write_text(small)
    assert command.main([file.name]) == 0, capsys.readouterr()


def _smaller(found: re.Match[str]) -> str:
    values = {"size": "4m", "runtime": "1", "ramp_time": "100ms", "nrfiles": "64"}
    return f"{found[1]}={values[found[1]]}"


def test_commands_for_many_hosts_are_read() -> None:
    (block,) = re.findall(r"```\n(threefs bench --server.*?)```", TEXT, re.DOTALL)
    server, client = (shlex.split(line)[2:] for line in block.splitlines())
    assert job_file.parse_arguments(server).run == {"server": "0.0.0.0:8765", "key-file": "/etc/threefs/key"}
    assert job_file.parse_arguments(client[:-1]).run["client"] == "node1,node2"


def test_the_error_in_the_page_is_the_one_that_comes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--name=a", "--iodept=4"]) == command.MISUSED
    assert capsys.readouterr().err.strip() in TEXT
