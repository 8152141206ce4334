"""The commands of the pages for administrators run on a cluster, each page from top to bottom."""

import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.cluster_selector import ADDRESS_VARIABLE
from threefs_cli.main import main

from tests.e2e.test_docs import verbs
from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT

WAIT_S = 60.0
LEASE_S = 5.0  # on a busy machine a process may not run for two seconds, and no node must be put out for that
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
#: A cluster that runs already gets them from another command than the person of the page.
STARTS_A_CLUSTER = "threefs up"
#: The groups of commands that change a cluster or show its parts.
ADMINISTRATION = ("node", "disk", "target", "table", "rebalance", "chain", "chunk", "scrub", "moves", "config")
PAGES = ("maintenance", "nodes", "tables")
#: Commands whose example needs a cluster in ruins, or another one, or somebody at the machine, and the tests that run
#: them there.
RUN_BY = {
    "disk replace": "tests/cluster/client/threefs_cli/test_disk_commands.py",
    "chain accept-loss": "tests/cluster/test_lost_chains.py",
    "chain accept-unheard": "tests/cluster/test_restored_manager.py",
}
RUN_BY |= dict.fromkeys(
    (f"config {verb}" for verb in ("get", "set", "status", "history", "rollback")),
    "tests/cluster/client/threefs_cli/test_config_commands.py",  # it runs the lines of docs/configuration.md
)

Hook = Callable[[LocalCluster], object]


def threefs(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, (arguments, result.output)
    return result.output


def wait_whole() -> None:
    """A target that was out of service returns within seconds, and the next line may need it."""
    deadline = time.monotonic() + WAIT_S
    while "target_held" not in (told := CliRunner().invoke(main, ["health"]).output) and "chain_" in told:
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def lines_of(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = [line.partition(" #")[0].strip() for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in found if line and not line.startswith(STARTS_A_CLUSTER)]


def run_page(page: str, cluster: LocalCluster, after: Mapping[str, Hook]) -> None:
    """Each line succeeds; after some of them the reader does what the page says in words."""
    left = dict(after)
    for line in lines_of(page):
        wait_whole()
        threefs(*shlex.split(line)[1:])
        if (done := left.pop(line, None)) is not None:
            done(cluster)
    assert not left, "the page has these lines"


def start_node_4(cluster: LocalCluster) -> None:
    cluster.launch_storage(4, "rack-2")
    cluster.storage[4].wait_ready()


def end_node_3(cluster: LocalCluster) -> None:
    cluster.storage.pop(3).kill()


def test_maintenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.bin").write_bytes(b"x" * (3 << 20))
    with LocalCluster(tmp_path / "cluster", lease_s=LEASE_S) as cluster:
        monkeypatch.setenv(ADDRESS_VARIABLE, cluster.address)
        run_page("maintenance", cluster, {})


def test_nodes_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(tmp_path, lease_s=LEASE_S, replicas=2) as cluster:
        monkeypatch.setenv(ADDRESS_VARIABLE, cluster.address)
        after = {"threefs node add 4 --domain rack-2": start_node_4, "threefs node remove 3": end_node_3}
        run_page("nodes", cluster, after)


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(tmp_path, lease_s=LEASE_S, replicas=1) as cluster, cluster.connect() as fs:
        monkeypatch.setenv(ADDRESS_VARIABLE, cluster.address)
        fs.mkdir("/important")
        made: Hook = lambda _: fs.write_file("/scratch/file", b"abc")  # noqa: E731
        run_page("tables", cluster, {"threefs mkdir --table 2 /scratch": made})


def test_each_verb_of_administration_has_an_example_that_runs() -> None:
    run = [line for page in PAGES for line in lines_of(page) if not line.endswith(" --dry-run")]
    for name in ADMINISTRATION:
        for words in verbs(main.commands[name], (name,)):
            verb = " ".join(words)
            if any(f"{line} ".startswith(f"threefs {verb} ") for line in run):
                continue
            assert verb in RUN_BY, f"`threefs {verb}` has no example in a page that runs"
            group, _, word = verb.partition(" ")
            source = (ROOT / RUN_BY[verb]).read_text(encoding="utf-8")
            assert f'"{group}", "{word}"' in source or "configuration.md" in source, verb
