import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner
from threefs_cli import cluster_file, processes
from threefs_cli.cluster_file import Plan
from threefs_cli.cluster_selector import ADDRESS_VARIABLE, ClusterSelector, cluster_options, managers
from threefs_client import AsyncFileSystem, keyring

from threefs import cluster_key
from threefs.errors import NotFound, Unavailable
from threefs.rpc.methods import READ_LOG, Method
from threefs.wire import backup_pb2 as pb


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    monkeypatch.setenv(keyring.DATA_VARIABLE, str(tmp_path / "data"))


def cluster_at(directory: Path, address: str) -> None:
    """Its manager runs as far as anybody can see: it is this very process."""
    directory.mkdir(parents=True)
    state = cluster_file.fresh(Plan())
    manager = dataclasses.replace(
        state.program("manager"), addresses=(address, "c:1"), process=processes.of(os.getpid())
    )
    cluster_file.save(directory, state.replace(manager))


def test_what_is_said_goes_before_what_lies_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = ClusterSelector(None, None, False)
    with pytest.raises(NotFound, match=r"threefs up.*--address, --dir or \$THREEFS_ADDRESS"):
        named.url()
    cluster_at(cluster_file.default_directory(), "default:1")
    assert named.url() == "threefs://default:1"
    monkeypatch.setenv(ADDRESS_VARIABLE, "threefs://variable:1")
    assert named.url() == "threefs://variable:1"
    cluster_at(tmp_path / "other", "other:1")
    assert ClusterSelector(None, tmp_path / "other", False).url() == "threefs://other:1"
    assert ClusterSelector("said:1", None, False).url() == "said:1"


def test_the_key_of_a_local_cluster_is_in_its_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster_at(tmp_path / "one", "one:1")
    assert ClusterSelector(None, tmp_path / "one", False).key_file() == ""
    cluster_key.make(cluster_file.key_file(tmp_path / "one"))
    assert ClusterSelector(None, tmp_path / "one", False).key_file() == str(tmp_path / "one" / "key")
    assert ClusterSelector("one:1", None, False).key_file() == ""  # it is found by the address
    assert ClusterSelector(None, tmp_path / "one", False, tmp_path / "said").key_file() == str(tmp_path / "said")
    monkeypatch.setenv("THREEFS_DIR", str(tmp_path / "one"))
    assert ClusterSelector(None, None, False).url() == "threefs://one:1"


def test_two_names_for_a_cluster_are_one_too_many() -> None:
    @click.command()
    @cluster_options
    def look(selector: ClusterSelector) -> None:
        click.echo(f"{selector.address} {selector.as_json}")

    runner = CliRunner()
    both = runner.invoke(look, ["--address", "h:1", "--dir", "d"])
    assert both.exit_code == 2 and "--address and --dir" in both.output
    assert runner.invoke(look, ["--address", "h:1", "--json"]).output == "h:1 True\n"


class OneManagerGone:
    """Connections of a client; the manager at m:1 does not answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, address: str, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        self.asked.append(address)
        if address == "m:1":
            raise Unavailable("no answer")
        return pb.ReadLogReply()


async def test_the_next_manager_is_asked_when_one_does_not_answer() -> None:
    peers = OneManagerGone()
    fs = cast(AsyncFileSystem, SimpleNamespace(context=SimpleNamespace(peers=peers)))

    await managers(fs, "threefs://m:1,n:1").call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
    assert peers.asked == ["m:1", "n:1"]
