import os
from pathlib import Path
from typing import Any

import pytest
from threefs_bench.load.job import Job, checked
from threefs_bench.load.load_engine import Assignment
from threefs_bench.load.posix_engine import PosixEngine
from threefs_bench.load.tally import Result
from threefs_bench.load.turns import Window

from threefs.env.clock import CLOCK
from threefs.errors import Corrupt, NoSpace


async def run(directory: Path, **given: Any) -> Result:
    options = {"name": "a", "ioengine": "posix", "directory": str(directory), "size": "256k", **given}
    made = checked(Job({name: str(value) for name, value in options.items()}, {}))
    engine = PosixEngine(Assignment(made, 0, 0))
    result = Result()
    try:
        prepared: list[int] = []
        await engine.prepare(prepared.append)
        await engine.run(Window.of(made, CLOCK.monotonic()))
        await engine.verify(CLOCK.monotonic())
        for tally in engine.tallies:
            result.add_tally(tally)
    finally:
        await engine.close()
    return result


async def test_a_file_is_laid_out_read_and_left(tmp_path: Path) -> None:
    found = await run(tmp_path, rw="read", bs="64k")
    read = found.kinds["read"]
    assert (read.operations, read.bytes, read.short, read.latencies.count) == (4, 1 << 18, 0, 4)
    (file,) = tmp_path.iterdir()
    assert file.name == "a.0.0" and file.stat().st_size == 1 << 18
    before = file.read_bytes()
    await run(tmp_path, rw="randread", bs="4k")
    assert file.read_bytes() == before, "what is there is not laid out again"


async def test_a_file_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="are free there"):
        await run(tmp_path, rw="randread", bs="4k", size="1000p")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("depth", [1, 4])
async def test_writes_syncs_and_removal(tmp_path: Path, depth: int) -> None:
    found = await run(tmp_path, rw="randwrite", bs="4k", fsync=16, iodepth=depth, nrfiles=2, unlink=1)
    assert (found.kinds["write"].operations, found.kinds["write"].bytes) == (64, 1 << 18)
    assert found.kinds["sync"].operations == 4
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rw", ["write", "randwrite", "randrw"])
@pytest.mark.parametrize("depth", [1, 3])
async def test_written_bytes_are_read_back(tmp_path: Path, rw: str, depth: int) -> None:
    found = await run(tmp_path, rw=rw, bs="4k", verify="crc32c", iodepth=depth, nrfiles=2)
    assert found.kinds["verify"].operations >= found.kinds["write"].operations > 0
    assert found.operations == 64
    again = await run(tmp_path, rw="randread", bs="4k", verify="crc32c", nrfiles=2)
    assert again.kinds["read"].operations == 64 and "verify" not in again.kinds


async def test_a_wrong_block_is_an_error_with_its_place(tmp_path: Path) -> None:
    await run(tmp_path, rw="write", bs="4k", verify="crc32c")
    with open(tmp_path / "a.0.0", "r+b") as file:
        file.seek(8192 + 100)
        file.write(b"wrong")
    with pytest.raises(Corrupt, match=r"a\.0\.0: block of 4096 bytes at offset 8192: its CRC32C"):
        await run(tmp_path, rw="read", bs="4k", verify="crc32c")


async def test_buffers_are_filled_before_the_run(tmp_path: Path) -> None:
    """In the run, the first operations would wait for it, and its time would count."""
    options = {"name": "a", "ioengine": "posix", "directory": str(tmp_path), "size": "64k", "rw": "write"}
    engine = PosixEngine(Assignment(checked(Job({**options, "bs": "8k", "iodepth": "3"}, {})), 0, 0))
    await engine.prepare(lambda done: None)
    assert [(len(view), len(set(view)) > 100) for view in engine._buffers] == [(8192, True)] * 3
    await engine.close()


async def test_a_lost_write_is_noticed(tmp_path: Path) -> None:
    """Between write and check, a block gets its content of before."""
    made = checked(
        Job(
            {
                "name": "a",
                "ioengine": "posix",
                "directory": str(tmp_path),
                "size": "64k",
                "rw": "write",
                "verify": "crc32c",
            },
            {},
        )
    )
    engine = PosixEngine(Assignment(made, 0, 0))
    await engine.prepare(lambda done: None)
    await engine.run(Window.of(made, CLOCK.monotonic()))
    old = (tmp_path / "a.0.0").read_bytes()[:4096]
    await engine.run(Window.of(made, CLOCK.monotonic()))
    with open(tmp_path / "a.0.0", "r+b") as file:
        file.write(old)
    with pytest.raises(Corrupt, match="at offset 0: it is of generation"):
        await engine.verify(CLOCK.monotonic())
    await engine.close()


async def test_a_file_that_ends_early_gives_short_reads(tmp_path: Path) -> None:
    made = checked(Job({"name": "a", "ioengine": "posix", "directory": str(tmp_path), "size": "64k"}, {}))
    engine = PosixEngine(Assignment(made, 0, 0))
    await engine.prepare(lambda done: None)
    os.truncate(tmp_path / "a.0.0", 10_000)
    await engine.run(Window.of(made, CLOCK.monotonic()))
    result = Result()
    for tally in engine.tallies:
        result.add_tally(tally)
    await engine.close()
    assert (result.kinds["read"].bytes, result.kinds["read"].short) == (10_000, 14)


async def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run(tmp_path / "absent")


async def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.0.0").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device.*a\.0\.0"):
        await run(tmp_path, rw="write")


async def test_a_job_that_its_rate_holds_up_lasts_as_long_as_its_runtime(tmp_path: Path) -> None:
    options = {"name": "a", "ioengine": "posix", "directory": str(tmp_path), "size": "256k", "rw": "write"}
    made = checked(Job({**options, "rate_iops": "1", "runtime": "1"}, {}))
    engine = PosixEngine(Assignment(made, 0, 0))
    await engine.prepare(lambda done: None)
    window = Window.of(made, CLOCK.monotonic())
    await engine.run(window)
    await engine.close()
    (tally,) = engine.tallies
    assert tally.kinds["write"].operations == 1 and tally.last_s >= window.end_s


async def test_direct_io_where_the_disk_has_it(tmp_path: Path) -> None:
    try:
        found = await run(tmp_path, rw="randwrite", bs="4k", direct=1)
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    assert found.operations == 64
