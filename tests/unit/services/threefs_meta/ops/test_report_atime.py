"""Access times by reads."""

import pytest
from threefs_meta.ops.report_atime import MAX_FILES, report_atime

from tests.harness.meta_harness import MetaBench
from threefs.access_time import DAY_NS
from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb


async def read(fs: MetaBench, *inodes: int, ago_ms: int = 0) -> None:
    await report_atime(fs.context, pb.ReportAtimeRequest(inode=inodes, ago_ms=[ago_ms] * len(inodes)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_the_first_read_after_a_change_counts_and_then_one_a_day(bench: MetaBench, seed: int) -> None:
    made = (await bench.create("/a")).inode
    bench.clock.advance(10)
    first_ns = bench.clock.wall_ns() - 2 * 10**9
    await read(bench, made.inode, ago_ms=2000)
    found = await bench.stat("/a")
    assert found.atime_ns == first_ns
    assert (found.mtime_ns, found.ctime_ns) == (made.mtime_ns, made.ctime_ns), "reading changes nothing else"
    bench.clock.advance(100)
    await read(bench, made.inode)
    assert (await bench.stat("/a")).atime_ns == first_ns
    await bench.set("/a", mode=0o600)
    changed_ns = bench.clock.wall_ns()
    await read(bench, made.inode, ago_ms=1000)
    assert (await bench.stat("/a")).atime_ns < changed_ns, "what was read before the change is not newer than it"
    for pause_s in (1, DAY_NS / 1e9):
        bench.clock.advance(pause_s)
        now_ns = bench.clock.wall_ns()
        await read(bench, made.inode)
        assert (await bench.stat("/a")).atime_ns >= now_ns


async def test_what_is_no_file_or_is_gone_is_passed_over(bench: MetaBench) -> None:
    directory = await bench.mkdir("/d")
    gone = (await bench.create("/gone")).inode
    await bench.remove("/gone")
    here = (await bench.create("/a")).inode
    bench.clock.advance(1)
    await read(bench, directory.inode, gone.inode, 999, here.inode)
    assert (await bench.stat("/d")).atime_ns == directory.atime_ns
    assert (await bench.stat("/a")).atime_ns == bench.clock.wall_ns()


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    for request in (
        pb.ReportAtimeRequest(inode=[1]),
        pb.ReportAtimeRequest(inode=[1] * (MAX_FILES + 1), ago_ms=[0] * (MAX_FILES + 1)),
    ):
        with pytest.raises(InvalidArgument):
            await report_atime(bench.context, request)
