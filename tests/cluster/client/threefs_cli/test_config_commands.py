"""The configuration of a cluster of the test's own, by the command line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from threefs.configuration import KEYS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path_factory.mktemp("config"), storage=2, replicas=2, targets_per_disk=2, lease_s=3.0)
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
    assert versions[1]["changes"] == [{"name": "cached_records", "before": "1000", "after": None}]
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


def test_the_versions_outlive_the_manager(cluster: LocalCluster, config: Config) -> None:
    config.run("set", "deferred_changes=64", "-m", "before the restart")
    start = config.version
    cluster.manager.settings |= {
        "port": int(cluster.manager.address.rpartition(":")[2]),
        "control_port": int(cluster.manager.addresses[1].rpartition(":")[2]),
    }
    cluster.manager.kill()
    cluster.manager.start()
    assert config.version == start and config.value("deferred_changes") == (64, "cluster")
    assert config.json("history")["versions"][0]["message"] == "before the restart"
