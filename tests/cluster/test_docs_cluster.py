"""The commands of docs/cluster.md, as they stand there, make a cluster."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.harness.processes import ROOT, environment, free_port

DOCUMENT = ROOT / "docs" / "cluster.md"
PROGRAMS = ("threefs_manager", "threefs_storage", "threefs_meta")


def test_services_started_by_hand_hold_files(tmp_path: Path) -> None:
    text = DOCUMENT.read_text().replace("/var/lib/threefs", str(tmp_path))
    for port in sorted(set(re.findall(r"\b70\d\d\b", text))):
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    settings = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (plan,) = re.findall(r"```sh\nthreefs (init .*?)```", text, re.DOTALL)
    assert len(settings) == len(PROGRAMS)
    running: list[subprocess.Popen[str]] = []
    try:
        for module, content in zip(PROGRAMS, settings, strict=True):
            numbers = (1, 2, 3) if module == "threefs_storage" else (1,)
            running.extend(launch(tmp_path / f"{module}-{n}.toml", module, numbered(content, n)) for n in numbers)
        assert ready(running[0])
        first = threefs(plan)
        assert "3 storage nodes, 3 copies" in first.stdout
        assert threefs(plan).stdout == first.stdout, "a repeated plan is the same cluster"
        other = threefs(plan + " --targets-per-disk 1", expect=1)
        assert other.stderr.startswith("Error: ") and "plan" in other.stderr
        assert all(ready(process) for process in running[1:])
        (frames,) = re.findall(r'manager = "(\S+)"', settings[1])
        out = run(
            f"import threefs; fs = threefs.connect('threefs://{frames}')\n"
            "with fs.open('/a', 'wb') as f: f.write(b'abc')\n"
            "with fs.open('/a', 'rb') as f: print(f.read())\n"
            "fs.close()"
        )
        assert out == "b'abc'\n"
    finally:
        for process in running:
            process.terminate()
        assert [process.wait(30) for process in running] == [0] * len(running)
        for process in running:
            process.stdout.close()  # type: ignore[union-attr]


def numbered(content: str, number: int) -> str:
    """The settings of the number-th storage node, after those of the first."""
    content = content.replace("node_id = 1", f"node_id = {number}").replace("storage-1", f"storage-{number}")
    return re.sub(r"^port = .*", f"port = {free_port()}", content, flags=re.MULTILINE) if number > 1 else content


def launch(file: Path, module: str, content: str) -> "subprocess.Popen[str]":
    file.write_text(content)
    command = [sys.executable, "-m", module, "--settings", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


def ready(process: "subprocess.Popen[str]") -> bool:
    assert process.stdout is not None
    return process.stdout.readline().startswith("ready ")


def threefs(command: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "threefs_cli", *shlex.split(command)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == expect, done.stderr
    return done


def run(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=110).stdout
