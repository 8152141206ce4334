import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from threefs_bench.load import command, options

from tests.harness.processes import environment

pytestmark = pytest.mark.processes

COMMAND = [sys.executable, "-m", "threefs_bench.load.command"]
WRITES = ["--ioengine=posix", "--rw=write", "--size=1m", "--filename=/no/such/x"]


def posix(directory: Path, *more: str) -> list[str]:
    return ["--name=a", "--ioengine=posix", f"--directory={directory}", "--size=64k", *more]


def test_help_has_every_option_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    found = capsys.readouterr().out
    for option in options.OPTIONS:
        assert f"  --{option.name}" in found
    assert "threefs bench --name=a --rw=read" in found and all(len(line) <= 122 for line in found.splitlines())
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("threefs-bench ")


def test_the_report_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(posix(tmp_path, "--rw=write", "--verify=crc32c")) == 0
    found = capsys.readouterr().out
    assert "a: (groupid=0, jobs=1): err= 0" in found and "  WRITE: bw=" in found


def test_a_reader_that_has_closed_the_pipe_ends_it_without_a_word(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*COMMAND, *posix(tmp_path, "--rw=write")], stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=60
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("form", ["json", "json+"])
def test_the_report_in_json_goes_to_a_file(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "x.json"
    assert command.main(posix(tmp_path, f"--output-format={form}", f"--output={output}")) == 0
    (job,) = json.loads(output.read_text())["jobs"]
    assert job["read"]["total_ios"] == 16 and ("bins" in job["read"]["clat_ns"]) is (form == "json+")
    assert capsys.readouterr().out == ""


def test_a_job_that_fails_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.0.0").write_bytes(b"x" * 65536)
    assert command.main(posix(tmp_path, "--verify=crc32c", "--json")) == command.FAILED
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["error"] == 5 and "a.0.0: block of 4096 bytes at offset 0" in job["threefs"]["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no job"),
        (["--name=a", "--siz=1"], "the nearest one is 'size'"),
        (["--name=a", "--size=1m", "--ioengine=posix", "--output-format=xml"], "none of normal, json, json+"),
        (["--name=a", "--size=1m", "--ioengine=posix", "--eta=soon"], "none of always, auto, never"),
        (["--name=a", "--size=1m", "--ioengine=posix", "--output=/no/such/file"], "/no/such/file: No such file"),
        ([*WRITES, "--verify=crc32c", "--name=a", "--name=b"], "verify cannot judge /no/such/x"),
        (["/no/such/job.fio"], "/no/such/job.fio: No such file"),
        (["--server=nowhere"], "is not an address"),
        (["--server=127.0.0.1:0", "--allow-directory=/no/such"], "is not a directory"),
    ],
)
def test_bad_options_are_exit_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == command.MISUSED
    found = capsys.readouterr().err
    assert found.startswith("Error: ") and said in found and found.count("\n") == 1


def test_no_cluster_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THREEFS_ADDRESS", raising=False)
    monkeypatch.setenv("THREEFS_DIR", str(tmp_path / "none"))
    assert command.main(["--name=a", "--size=1m"]) in (command.FAILED, command.MISUSED)
    assert "no cluster is named" in capsys.readouterr().err


def test_ctrl_c_ends_it_with_the_figures_so_far(tmp_path: Path) -> None:
    arguments = posix(tmp_path, "--time_based", "--runtime=3600", "--json", "--eta=always")
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stderr is not None
    while "r=" not in process.stderr.readline():
        pass
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == command.INTERRUPTED
    assert json.loads(output)["jobs"][0]["read"]["total_ios"] > 0


def test_a_server_works_for_a_client_until_it_is_told_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = subprocess.Popen(
        [*COMMAND, "--server=127.0.0.1:0", f"--allow-directory={tmp_path}"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[1]
        assert command.main([f"--client={address}", "--json", *posix(tmp_path, "--rw=write")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["client_stats"] == found["jobs"] and found["jobs"][0]["port"] == int(address.rpartition(":")[2])
        assert found["jobs"][0]["write"]["total_ios"] == 16
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        server.stdout.close()
