from pathlib import Path
from typing import Any

import pytest
from threefs_bench.load import job_file
from threefs_bench.load.load_engine import Assignment
from threefs_bench.load.native_engine import NativeEngine
from threefs_bench.load.runner import Run, Runner
from threefs_bench.load.tally import Result
from threefs_bench.load.turns import Window
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster
from threefs.env import net
from threefs.env.clock import CLOCK
from threefs.errors import Corrupt, NoSpace


async def run(cluster: LocalCluster, directory: str, **given: Any) -> Result:
    options = {"ioengine": "native", "address": cluster.address, "directory": directory, "size": "1m", **given}
    text = "[a]\n" + "\n".join(f"{name}={value}" for name, value in options.items())
    (made,) = job_file.parse_text(text, "x")
    engine = NativeEngine(Assignment(made, 0, 0))
    result = Result()
    try:
        await engine.prepare(lambda done: None)
        await engine.run(Window.of(made, CLOCK.monotonic()))
        await engine.verify(CLOCK.monotonic())
        for tally in engine.tallies:
            result.add_tally(tally)
    finally:
        await engine.close()
    return result


@pytest.mark.parametrize("batch", [1, 8])
async def test_reads_find_what_is_laid_out(cluster: LocalCluster, fs: FileSystem, batch: int) -> None:
    found = await run(cluster, f"/load-read-{batch}", rw="randread", bs="4k", batch=batch, iodepth=16, nrfiles=2)
    read = found.kinds["read"]
    assert (read.operations, read.bytes, read.short, read.latencies.count) == (256, 1 << 20, 0, 256)
    assert {entry.name for entry in fs.list(f"/load-read-{batch}")} == {"a.0.0", "a.0.1"}


async def test_a_file_that_does_not_fit_is_not_begun(cluster: LocalCluster, fs: FileSystem) -> None:
    with pytest.raises(NoSpace, match="are free there"):
        await run(cluster, "/too-large", rw="randread", bs="4k", size="1000p")
    assert not fs.exists("/too-large")


@pytest.mark.parametrize("unix", [0, 1])
async def test_services_on_this_host_are_reached_as_the_job_says(cluster: LocalCluster, unix: int) -> None:
    before = set(net._STREAMS)
    options = f"[a]\nioengine=native\naddress={cluster.address}\ndirectory=/load-{unix}\nsize=1m\nunix_sockets={unix}"
    (made,) = job_file.parse_text(options, "x")
    engine = NativeEngine(Assignment(made, 0, 0))
    try:
        await engine.prepare(lambda done: None)
        assert len(engine._memory) == 1, "the time of its filling is no part of the run"
        services = [stream.service for stream in set(net._STREAMS) - before]
    finally:
        await engine.close()
    assert services and all(name.startswith("@threefs.") == bool(unix) for name in services)


@pytest.mark.parametrize("rw", ["write", "randwrite", "randrw"])
async def test_written_bytes_are_read_back(cluster: LocalCluster, fs: FileSystem, rw: str) -> None:
    directory = f"/load-verify-{rw}"
    found = await run(cluster, directory, rw=rw, bs="16k", batch=2, iodepth=8, verify="crc32c", nrfiles=2, fsync=8)
    assert found.operations == 64 and found.kinds["verify"].operations >= found.kinds["write"].operations > 0
    assert found.kinds["sync"].operations > 0
    again = await run(cluster, directory, rw="randread", bs="16k", verify="crc32c", nrfiles=2, unlink=1)
    assert again.operations == 64 and not list(fs.list(directory))


async def test_a_wrong_block_is_an_error_with_its_place(cluster: LocalCluster, fs: FileSystem) -> None:
    await run(cluster, "/load-wrong", rw="write", bs="4k", verify="crc32c")
    with fs.open("/load-wrong/a.0.0", "r+b") as file:
        file.seek(40_000)
        file.write(b"wrong")
    with pytest.raises(Corrupt, match=r"^/load-wrong/a\.0\.0: block of 4096 bytes at offset 36864: its CRC32C"):
        await run(cluster, "/load-wrong", rw="read", bs="4k", verify="crc32c", batch=4)


async def test_split_blocks_and_rates(cluster: LocalCluster) -> None:
    found = await run(cluster, "/load-split", rw="randrw", bssplit="4k/50:32k/50", iodepth=4, rate="100m", unlink=1)
    assert found.bytes >= 1 << 20 and {"read", "write"} <= set(found.kinds)


async def test_processes_of_the_runner_and_the_cpu_of_the_services(cluster: LocalCluster, tmp_path: Path) -> None:
    text = f"""
    [global]
    address={cluster.address}
    directory=/load-runner
    size=4m
    group_reporting
    [a]
    rw=write
    bs=64k
    numjobs=2
    [b]
    stonewall
    rw=randread
    bs=4k
    batch=64
    unix_sockets=0
    ramp_time=0.2
    runtime=4
    time_based
    """  # a machine that stalls for a second or two still reads in that time
    jobs = job_file.parse_text(text, "x")
    found: Run = await Runner(jobs, lambda snapshot: None).run()
    writes, (reads,) = found.results
    assert [result.error for result in (*writes, reads)] == ["", "", ""]
    assert sum(result.bytes for result in writes) == 8 << 20
    assert reads.runtime_ms > 3200 and reads.operations > 0 and reads.user_s > 0
    assert reads.grants["at_once"] + reads.grants["granted"] > 0
    assert set(found.services[1]) == {"manager", "meta", "storage"} and found.services[1]["storage"] > 0


async def test_a_cluster_that_is_not_there_is_an_error_in_words(cluster: LocalCluster) -> None:
    (job,) = job_file.parse_text("[a]\naddress=127.0.0.1:1\nsize=4k", "x")
    found = await Runner([job], lambda snapshot: None).run()
    assert found.results[0][0].errno and "127.0.0.1:1" in found.results[0][0].error


@pytest.mark.parametrize("engine", ["native", "meta"])
async def test_a_job_that_its_rate_holds_up_lasts_as_long_as_its_runtime(cluster: LocalCluster, engine: str) -> None:
    amount = "size=1m\nrw=write" if engine == "native" else "nrfiles=9\nmetaop=create"
    text = f"[a]\nioengine={engine}\naddress={cluster.address}\ndirectory=/load-{engine}-rate\n{amount}"
    run = await Runner(job_file.parse_text(f"{text}\nrate_iops=1\nruntime=1", "x"), lambda snapshot: None).run()
    ((result,),) = run.results
    assert result.operations == 1 and result.runtime_ms > 999
