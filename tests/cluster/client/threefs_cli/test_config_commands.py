"""The configuration of a cluster of the test's own, by the command line."""

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest
import threefs_client
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT
from threefs.configuration import KEYS
from threefs.rpc import methods
from threefs.wire import manager_pb2 as pb

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path_factory.mktemp("config"), storage=2, replicas=2, targets_per_disk=2)
    try:
        yield made.start()
        made.stop()
    finally:
        made.kill()


class Config:
    """`threefs config` on one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._where = ("--address", cluster.address)

    def run(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["config", *arguments, *self._where])
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    @property
    def version(self) -> int:
        return int(self.json("get")["version"])

    def states(self) -> dict[int, str]:
        """By node; 0 is the manager."""
        return {one["node_id"]: one["state"] for one in self.json("status")["processes"]}

    def wait_for_states(self, expected: dict[int, str]) -> None:
        deadline = time.monotonic() + WAIT_S
        while expected.items() - self.states().items():
            assert time.monotonic() < deadline, self.states()
            time.sleep(0.1)

    def at_node(self, node: int, key: str) -> tuple[Any, str, str]:
        (found,) = self.json("get", key, "--node", str(node))["keys"]
        return found["value"], found["source"], found["state"]

    def value(self, key: str) -> tuple[Any, str]:
        (found,) = self.json("get", key)["keys"]
        return found["value"], found["source"]


@pytest.fixture
def config(cluster: LocalCluster) -> Config:
    return Config(cluster)


def test_get_shows_every_key_with_its_bounds_and_source(config: Config) -> None:
    found = config.json("get")
    assert [each["name"] for each in found["keys"]] == list(KEYS)
    shown = config.run("get")
    assert all(name in shown for name in KEYS) and "32 MiB/s" in shown and "0.5 to 1" in shown
    only = config.json("get", "scrub_interval_s")["keys"]
    assert [(each["value"], each["source"], each["unit"]) for each in only] == [(604_800.0, "default", "seconds")]


def test_values_are_set_in_versions_and_rolled_back(config: Config) -> None:
    start = config.version
    dry = config.json("set", "cached_records=1000", "--dry-run")
    assert dry["version"] == start + 1 and config.version == start
    shown = config.run("set", "cached_records=1000", "removals_at_once=8", "-m", "less memory")
    assert f"version {start + 1}" in shown and "cached_records: 32768 (default) -> 1000" in shown
    assert config.value("cached_records") == (1000, "cluster")
    assert "nothing changes" in config.run("set", "cached_records=1000")
    config.run("set", "cached_records=default")
    assert config.value("cached_records") == (32_768, "default")
    back = config.json("rollback", str(start + 1), "-m", "it was right")
    assert (back["version"], config.value("cached_records")) == (start + 3, (1000, "cluster"))
    versions = config.json("history")["versions"]
    assert [one["version"] for one in versions[:3]] == [start + 3, start + 2, start + 1]
    assert (versions[0]["rollback_version"], versions[2]["message"]) == (start + 1, "less memory")
    assert versions[1]["changes"] == [{"name": "cached_records", "before": 1000, "after": None}]  # not "1000"
    assert versions[2]["values"]["cached_records"] == 1000
    assert "@" in versions[0]["who"]
    told = config.run("history")
    assert f"as in version {start + 1}" in told and "less memory" in told


def test_what_is_wrong_is_refused_and_changes_nothing(config: Config) -> None:
    start = config.version
    for arguments, said in (
        (("set", "scrub_byte_per_s=1M"), "did you mean scrub_bytes_per_s?"),
        (("set", "full_ratio=2", "removals_at_once=4"), "full_ratio is from 0.5 to 1, not 2"),
        (("set", "full_ratio=0.8"), "must be below full_ratio (0.8)"),
        (("set", "full_ratio"), "a change is written KEY=VALUE"),
        (("set", "removals_at_once=4", "--at-version", str(start + 7)), f"at version {start} now, not {start + 7}"),
        (("get", "ful_ratio"), "did you mean full_ratio?"),
    ):
        assert said in config.run(*arguments, code=2), arguments
    assert "has no version 99 any more" in config.run("rollback", "99", code=1)
    assert config.version == start


def scrub_passes(cluster: LocalCluster) -> int:
    """Of the target that was read least often."""
    status = cluster.ask(methods.GET_STATUS, pb.GetStatusRequest())
    return min(report.scrub_passes for row in status.nodes for report in row.targets)


def test_running_processes_take_a_value_and_act_by_it(cluster: LocalCluster, config: Config) -> None:
    dry = config.run("set", "scrub_interval_s=1s", "--dry-run")
    assert "storage node 2 takes at once scrub_interval_s" in dry and "meta service" not in dry
    start, before = config.version, scrub_passes(cluster)
    told = config.run("set", "scrub_interval_s=1s")
    assert "storage node 1 has taken scrub_interval_s" in told and "manager" not in told
    assert config.at_node(1, "scrub_interval_s") == (1.0, "cluster", "")
    deadline = time.monotonic() + WAIT_S
    while scrub_passes(cluster) < before + 3:  # by the default they are a week apart
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert set(config.states().values()) == {"applied"}
    found = config.json("rollback", str(start))["processes"]
    assert [one["applied"] for one in found if one["node_id"] in (1, 2)] == [["scrub_interval_s"]] * 2
    assert config.at_node(2, "scrub_interval_s") == (604_800.0, "default", "")


def test_a_node_that_was_down_catches_up_and_its_own_file_wins(cluster: LocalCluster, config: Config) -> None:
    node = cluster.storage[2]
    node.stop()
    told = config.run("set", "ballast_bytes=8MiB", "cached_records=500")
    assert "storage node 1 takes with its next start ballast_bytes" in told
    assert "storage node 1 has taken cached_records" in told
    assert "storage node 2 has not taken ballast_bytes, cached_records (does not run)" in told
    config.wait_for_states({0: "applied", 1: "waits for a restart", 2: "does not run"})
    assert config.at_node(1, "ballast_bytes") == (16 << 20, "cluster", "waits for a restart")
    node.settings |= {"full_ratio": 0.97}
    node.start()
    config.wait_for_states({2: "applied"})
    assert config.at_node(2, "ballast_bytes") == (8 << 20, "cluster", "")
    assert config.at_node(2, "full_ratio") == (0.97, "file", "own settings file")
    dry = config.run("set", "full_ratio=0.96", "--dry-run")
    assert "storage node 2 goes by its own settings file for full_ratio" in dry
    shown = config.run("status")
    assert "full_ratio (own settings file)" in shown and "ballast_bytes (waits for a restart)" in shown
    assert "0.97" in config.run("get", "--node", "2") and "file" in config.run("get", "--node", "2")
    config.run("set", "ballast_bytes=default")
    config.wait_for_states({1: "applied", 2: "waits for a restart"})


def test_a_node_is_asked_only_for_what_concerns_it(config: Config) -> None:
    assert "storage node 1 does not take nearly_full_ratio; manager does" in config.run(
        "get", "nearly_full_ratio", "--node", "1", code=2
    )
    assert "node 77 is not in the plan" in config.run("get", "--node", "77", code=1)
    meta = next(node for node in config.states() if node > 1000)
    config.run("set", "removals_at_once=9")
    assert config.at_node(meta, "removals_at_once") == (9, "cluster", "")


def dirty_limit(fs: threefs_client.FileSystem) -> int:
    fs.stat("/")  # it connects with its first call
    assert fs._connected is not None
    return fs._connected.context.write_budget.limit_bytes


def test_clients_take_values_while_they_are_connected(cluster: LocalCluster, config: Config) -> None:
    with cluster.connect() as fs, cluster.connect(max_dirty_bytes=3 << 20) as own:
        assert (dirty_limit(fs), dirty_limit(own)) == (64 << 20, 3 << 20)
        told = config.run("set", "max_dirty_bytes=2MiB")
        assert "1 of 2 clients and mounts have taken max_dirty_bytes" in told and "storage node" not in told
        assert f"process {os.getpid()} goes by its own options for max_dirty_bytes" in told
        assert (dirty_limit(fs), dirty_limit(own)) == (2 << 20, 3 << 20), "its program has chosen that"
        said = config.json("status")["clients"]
        assert {one["state"] for one in said} == {"applied"} and len(said) == 2
        assert sorted(key["value"] for one in said for key in one["keys"]) == [str(3 << 20)]
        shown = config.run("status")
        assert "max_dirty_bytes (own option)" in shown and "clients and mounts: 1" in shown
        with fs.open("/written", "wb") as file:
            file.write(b"x" * (5 << 20))
        with cluster.connect() as later:
            assert dirty_limit(later) == 2 << 20 and later.stat("/written").length == 5 << 20
        config.run("set", "max_dirty_bytes=default")
    deadline = time.monotonic() + WAIT_S
    while config.json("status")["clients"]:  # they are closed
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_versions_outlive_the_manager(cluster: LocalCluster, config: Config) -> None:
    config.run("set", "deferred_changes=64", "-m", "before the restart")
    start = config.version
    cluster.manager.kill()
    cluster.manager.start()
    assert config.version == start and config.value("deferred_changes") == (64, "cluster")
    assert config.json("history")["versions"][0]["message"] == "before the restart"
    config.wait_for_states({0: "applied", 1: "applied"})
    assert config.at_node(1, "deferred_changes") == (64, "cluster", "")


def test_the_commands_of_the_page_do_what_it_says(config: Config) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line.partition("#")[0] for line in block.splitlines()]
    assert len(lines) > 8
    said = {line: config.run(*shlex.split(line)[2:]) for line in lines}
    for command, words in (
        ("get --node 2", "storage node 2: "),
        ("--dry-run", "would be version"),
        ("=default", "-> 32 MiB/s (default)"),
        ("history", "new disks"),
        ("rollback", "version"),
    ):
        assert any(command in line and words in output for line, output in said.items()), said
