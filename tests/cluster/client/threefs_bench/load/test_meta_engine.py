import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_bench.load import job_file
from threefs_bench.load.load_engine import Assignment
from threefs_bench.load.meta_engine import MetaEngine
from threefs_bench.load.tally import Result
from threefs_bench.load.turns import Window
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster
from threefs.env.clock import CLOCK
from threefs.errors import AlreadyExists


async def to_its_end(engine: MetaEngine, window: Window) -> None:
    await engine.run(window)


async def run(
    cluster: LocalCluster, play: Callable[[MetaEngine, Window], Awaitable[None]] = to_its_end, **given: Any
) -> Result:
    options = {"ioengine": "meta", "address": cluster.address, "directory": "/load-meta", "nrfiles": 40, **given}
    text = "[a]\n" + "\n".join(f"{name}={value}" for name, value in options.items())
    (made,) = job_file.parse_text(text, "x")
    engine = MetaEngine(Assignment(made, 0, 0))
    result = Result()
    try:
        await engine.prepare(lambda done: None)
        await play(engine, Window.of(made, CLOCK.monotonic()))
        for tally in engine.tallies:
            result.add_tally(tally)
    finally:
        await engine.close()
    return result


@pytest.mark.parametrize("operation", ["create", "stat", "rename", "remove"])
@pytest.mark.parametrize(("batch", "depth"), [(1, 4), (5, 10)])
async def test_each_operation_once_for_each_name(
    cluster: LocalCluster, fs: FileSystem, operation: str, batch: int, depth: int
) -> None:
    found = await run(cluster, metaop=operation, batch=batch, iodepth=depth)
    assert set(found.kinds) == {operation}
    assert found.operations == 40 and found.kinds[operation].latencies.count == 40
    assert not list(fs.list("/load-meta")), "the directory of the process is removed"


async def test_a_listing_counts_its_names(cluster: LocalCluster) -> None:
    assert (await run(cluster, metaop="list")).operations == 40


async def test_a_mix_for_some_time(cluster: LocalCluster) -> None:
    kinds = {"create", "stat", "list", "rename", "remove"}

    async def until_all_were_done(engine: MetaEngine, window: Window) -> None:
        """The machine may stall for a second, and a listing is one call in twenty."""
        load = asyncio.create_task(engine.run(window))
        while not load.done() and {kind for tally in engine.tallies for kind in tally.kinds} < kinds:
            await asyncio.sleep(0.05)
        engine.stop()
        await load

    mix = "create/25:stat/40:list/5:rename/10:remove/20"
    options: dict[str, Any] = {"metaop": mix, "iodepth": 8, "time_based": 1, "ramp_time": "100ms"}
    found = await run(cluster, until_all_were_done, runtime=600, **options)
    assert set(found.kinds) == kinds
    found = await run(cluster, runtime=1, **options)  # of which nobody can say how much there is time for
    assert set(found.kinds) <= kinds


async def test_remains_of_another_run_are_not_touched(cluster: LocalCluster, fs: FileSystem) -> None:
    fs.mkdir("/load-meta/a.0", parents=True)
    with pytest.raises(AlreadyExists, match=r"threefs rm -r /load-meta/a\.0"):
        await run(cluster)
    assert [entry.name for entry in fs.list("/load-meta")] == ["a.0"]
    fs.remove("/load-meta/a.0")
