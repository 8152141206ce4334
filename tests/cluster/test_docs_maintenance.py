"""The commands of docs/maintenance.md run on a cluster, from top to bottom."""

import re
import shlex
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.cluster_selector import ADDRESS_VARIABLE
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT

DOCUMENT = ROOT / "docs" / "maintenance.md"
WAIT_S = 60.0
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def wait_whole() -> None:
    """A target that was out of service returns within seconds, and the next line may need it."""
    deadline = time.monotonic() + WAIT_S
    while "target_held" not in (told := CliRunner().invoke(main, ["health"]).output) and "chain_" in told:
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.bin").write_bytes(b"x" * (3 << 20))
    lines = [line for block in BLOCK.findall(DOCUMENT.read_text()) for line in block.splitlines() if line.strip()]
    assert len(lines) > 5
    with LocalCluster(tmp_path / "cluster", lease_s=2.0) as cluster:
        monkeypatch.setenv(ADDRESS_VARIABLE, cluster.address)
        for line in lines:
            wait_whole()
            result = CliRunner().invoke(main, shlex.split(line, comments=True)[1:])
            assert result.exit_code == 0, (line, result.output)
