"""A short chaos run, so that the harness itself stays true; `make chaos` is the long one."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.chaos.__main__ import run
from tests.chaos.cluster import WIDE, cluster_in, lacking, names_of
from tests.chaos.faults import KINDS, WIDE_KINDS, Faults, draw_together
from tests.chaos.namespaces import HOST, Network, Unprivileged

STRUCK = ("level", "kill", "stop", "oneway", "link", "cutoff", "drain", "restart", "offline", "slow", "everything")


@pytest.mark.timeout(400)
def test_a_few_faults_under_load_break_nothing(tmp_path: Path) -> None:
    with cluster_in(tmp_path) as cluster:
        result = asyncio.run(run(cluster, 8.0, 3, 3))
    assert not result["violations"], result["problems"]
    assert result["operations"] > 10 and result["faults"]


@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(lacking(WIDE)), reason=lacking(WIDE) or "it can run here")
def test_several_of_everything_and_two_mounts_under_faults(tmp_path: Path) -> None:
    with cluster_in(tmp_path, WIDE) as cluster:
        result = asyncio.run(run(cluster, 12.0, 2, 2))
    assert not result["violations"], result["problems"]
    assert result["operations_on_names"] > 10 and result["steps_under_locks"] and result["faults"]


@pytest.mark.timeout(400)
def test_every_kind_of_fault_strikes_and_is_taken_back(tmp_path: Path) -> None:
    async def strike_all(faults: Faults) -> None:
        for kind in STRUCK:
            await faults.strike(kind)

    with cluster_in(tmp_path) as cluster:
        asyncio.run(cluster.start())
        faults = Faults(cluster, 5, lambda line: None)
        asyncio.run(strike_all(faults))
        assert not asyncio.run(cluster.healthy(60.0))
        assert not cluster.end()
    if cluster.network is not None:
        assert len(faults.counts) == len(STRUCK)


def test_the_faults_of_a_seed_are_always_the_same_and_leave_a_replica_of_every_chain_well() -> None:
    storage, kinds = names_of(WIDE)[1], (*KINDS, *WIDE_KINDS)
    runs = [[draw_together(dice, kinds, WIDE) for _ in range(400)] for dice in (Random(4), Random(4))]
    assert runs[0] == runs[1]
    assert {fault.kind for together in runs[0] for fault in together} == set(kinds)
    pairs = [together for together in runs[0] if len(together) == 2]
    assert pairs
    for first, second in pairs:
        assert not first.ill & second.ill
        assert set(storage) - first.ill - second.ill


def test_packets_are_lost_one_way_without_a_word() -> None:
    try:
        network = Network(["a", "b"]).__enter__()
    except Unprivileged as error:
        pytest.skip(str(error))
    try:
        network.block("a", "b")
        assert "timed out" in _connect(network, "a", "b")
        assert "refused" in _connect(network, "a", HOST)
        network.unblock("a", "b")
        assert "refused" in _connect(network, "a", "b")
        network.block(HOST, "a")
        assert "timed out" in _connect(network, "a", HOST), "the answer is lost"
        assert "refused" in _connect(network, "b", HOST)
    finally:
        network.close()


def test_without_the_tools_only_faults_of_the_network_and_of_disks_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with cluster_in(tmp_path / "cluster") as cluster:
        asyncio.run(cluster.start())
        assert not asyncio.run(cluster.healthy(60.0))
        faults = Faults(cluster, 5, lambda line: None)
        assert set(KINDS) - set(faults.kinds) == {"oneway", "link", "cutoff", "full"}
        asyncio.run(faults.strike("everything"))
        assert not asyncio.run(cluster.healthy(60.0))
        assert not cluster.end()


def _connect(network: Network, name: str, to: str) -> str:
    """What a connection attempt to a port where nobody listens ends with: `refused` if packets go both ways."""
    address = network.gateway if to == HOST else network.addresses[to]
    script = f"import socket; socket.create_connection(('{address}', 9), 0.5)"
    run = subprocess.run([*network.inside(name), sys.executable, "-c", script], capture_output=True, text=True)
    return run.stderr
