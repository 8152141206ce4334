"""What `threefs up` does when it is ended early. No program runs."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from threefs_cli.cluster_file import STORAGE, ClusterFile, Plan, Program
from threefs_cli.local_cluster import LocalCluster

from threefs.errors import Unavailable
from threefs.rpc.methods import REBALANCE
from threefs.wire import manager_pb2 as pb


class GrownCluster(LocalCluster):
    """It has its plan already, and the programs that `up` starts are names only."""

    starts = True
    rebalances: Callable[[], None] = staticmethod(lambda: None)
    is_interrupted = False  # its first stop

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.stops: list[list[str]] = []

    def _ensure_key(self, *_: Any) -> None:
        pass

    def _record_key(self, *_: Any) -> None:
        pass

    def _check_manager_store(self, *_: Any) -> None:
        pass

    def _is_initialized(self, *_: Any) -> bool:
        return True

    async def _start(self, state: ClusterFile, *_: Any, **__: Any) -> ClusterFile:
        if not self.starts:
            raise Unavailable("it does not start")
        return state

    async def _call_manager(self, _: ClusterFile, method: Any, __: Any) -> Any:
        if method is REBALANCE:
            self.rebalances()
            await asyncio.sleep(0)
        return pb.GetStatusReply()

    async def _add_nodes(self, *_: Any) -> None:
        pass

    async def _await_chains(self, *_: Any) -> None:
        pass

    async def _stop(self, programs: Sequence[Program]) -> None:
        self.stops.append([program.name for program in programs])
        if self.is_interrupted and len(self.stops) == 1:
            raise asyncio.CancelledError

    def running(self) -> list[Program]:
        state = self.load()
        return list(state.of(STORAGE)) if state is not None else []


def interrupt() -> None:
    task = asyncio.current_task()
    assert task is not None, "the start is one"
    task.cancel()


def refuse() -> None:
    raise Unavailable("the manager has just started")


async def test_a_signal_during_the_rebalance_stops_what_was_started(tmp_path: Path) -> None:
    """The new storage processes ran on, and the next start took them for known ones and filled them no more."""
    cluster = GrownCluster(tmp_path / "cluster")
    cluster.rebalances = interrupt
    with pytest.raises(asyncio.CancelledError):
        await cluster.up(Plan(storage=2, replicas=2))
    assert cluster.stops == [["storage-1", "storage-2"]]


async def test_a_cluster_runs_without_a_rebalance(tmp_path: Path) -> None:
    cluster = GrownCluster(tmp_path / "cluster")
    cluster.rebalances = refuse
    with pytest.raises(Unavailable, match="no targets move to storage-1 before `threefs rebalance`: the manager has"):
        await cluster.up(Plan(storage=1, replicas=1))
    assert not cluster.stops


async def test_a_signal_does_not_break_off_the_stop_after_an_error(tmp_path: Path) -> None:
    """What did not end by itself ran on, and the addresses of new storage processes were kept."""
    cluster = GrownCluster(tmp_path / "cluster")
    cluster.starts, cluster.is_interrupted = False, True
    with pytest.raises(Unavailable, match="it does not start"):
        await cluster.up(Plan(storage=1, replicas=1))
    assert cluster.stops == [["storage-1"]] * 2
