"""A short chaos run, so that the harness itself stays true; `make chaos` is the long one."""

import asyncio
from pathlib import Path

from tests.chaos.__main__ import run
from tests.chaos.cluster import cluster_in
from tests.chaos.faults import Faults


def test_a_few_faults_under_load_break_nothing(tmp_path: Path) -> None:
    with cluster_in(tmp_path) as cluster:
        result = asyncio.run(run(cluster, 8.0, 3, 3))
    assert not result["violations"], result["problems"]
    assert result["operations"] > 100 and result["faults"]


def test_every_kind_of_fault_strikes_and_is_taken_back(tmp_path: Path) -> None:
    async def strike_all(faults: Faults) -> None:
        for kind in ("kill", "stop", "oneway", "cutoff", "restart", "slow", "everything"):
            await faults.strike(kind)

    with cluster_in(tmp_path) as cluster:
        asyncio.run(cluster.start())
        faults = Faults(cluster, 5, lambda line: None)
        asyncio.run(strike_all(faults))
        assert not asyncio.run(cluster.healthy(60.0))
        assert not cluster.end()
    if cluster.network is not None:
        assert len(faults.counts) == 7
