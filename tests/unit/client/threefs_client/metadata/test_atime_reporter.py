import asyncio
from collections.abc import Awaitable, Callable

from threefs_client.data.reads import ReadFile
from threefs_client.metadata.atime_reporter import AtimeReporter

from tests.harness.clocks import SteppedClock
from tests.harness.memory_cluster import MemoryFiles
from threefs.errors import Unavailable
from threefs.ids import TableId
from threefs.layout import FileLayout
from threefs.wire import meta_pb2 as pb


class Bench:
    def __init__(self, enabled: bool = True) -> None:
        self.clock = SteppedClock()
        self.requests: list[pb.ReportAtimeRequest] = []
        self.failures = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.times = AtimeReporter(self._send, enabled=enabled, clock=self.clock)

    async def _send(self, request: pb.ReportAtimeRequest, timeout_s: float) -> pb.ReportAtimeReply:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        self.requests.append(request)
        await self.answers.wait()
        return pb.ReportAtimeReply()

    @property
    def told(self) -> list[int]:
        return [inode for request in self.requests for inode in request.inode]


def play(scene: Callable[[Bench], Awaitable[None]], **options: bool) -> None:
    async def run() -> None:
        bench = Bench(**options)
        await scene(bench)
        await bench.times.close()

    asyncio.run(run())


def file(inode: int, due_ns: int = 0) -> ReadFile:
    return ReadFile(inode, FileLayout(1 << 20, TableId(1), 1), 0, 0, due_ns)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_files_go_together_each_once_and_not_before_they_are_due() -> None:
    async def scene(bench: Bench) -> None:
        first = file(1)
        for _ in range(3):
            bench.times.record_read(first)
            bench.times.record_read(file(2))
        bench.times.record_read(file(3, bench.clock.wall_ns() + 1))
        assert bench.requests == [], "nobody waits for it"
        await settle()
        assert [list(request.inode) for request in bench.requests] == [[1, 2]]
        assert list(bench.requests[0].ago_ms) == [1000, 1000]
        bench.times.record_read(first)
        await settle()
        assert len(bench.requests) == 1
        bench.clock.advance(24 * 3600)
        bench.times.record_read(first)
        await settle()
        assert bench.told == [1, 2, 1]

    play(scene)


def test_a_call_for_the_access_time_waits_until_it_is_reported() -> None:
    async def scene(bench: Bench) -> None:
        bench.times.record_read(file(1))
        assert bench.times.is_pending(1) and not bench.times.is_pending(2)
        await bench.times.flush()
        assert bench.told == [1] and not bench.times.is_pending(1)
        bench.times.record_read(file(3))
        bench.answers.clear()
        first, second = (asyncio.create_task(bench.times.flush()) for _ in range(2))
        await settle()
        assert bench.told == [1, 3] and bench.times.is_pending(3), "it is under way"
        assert not first.done() and not second.done()
        bench.answers.set()
        await asyncio.gather(first, second)
        assert not bench.times.is_pending(3)
        bench.times.record_read(file(4))
        bench.failures = 1
        await bench.times.flush()
        assert not bench.times.is_pending(4), "nobody waits for what cannot be told"

    play(scene)


def test_reads_are_reported_before_the_access_time_is_set() -> None:
    async def scene(bench: Bench) -> None:
        bench.times.record_read(file(1))
        await bench.times.before_setting(2)
        assert bench.told == [], "another file waits for nothing"
        await bench.times.before_setting(1)
        assert bench.told == [1]
        bench.times.record_read(file(3))
        await bench.times.before_setting()
        await bench.times.before_setting()
        assert bench.told == [1, 3] and len(bench.requests) == 2

    play(scene)


def test_many_files_go_in_pages() -> None:
    async def scene(bench: Bench) -> None:
        for inode in range(600):
            bench.times.record_read(file(inode))
        await settle()
        assert bench.told == list(range(600))
        assert max(len(request.inode) for request in bench.requests) <= 256

    play(scene)


def test_a_failed_report_is_dropped_and_the_next_one_is_sent() -> None:
    async def scene(bench: Bench) -> None:
        bench.failures = 1
        bench.times.record_read(file(1))
        await settle()
        bench.times.record_read(file(2))
        await settle()
        assert bench.told == [2]
        bench.failures = 1
        bench.times.record_read(file(3))  # and closing does not fail

    play(scene)


def test_closing_tells_what_was_read_last() -> None:
    benches = []

    async def scene(bench: Bench) -> None:
        benches.append(bench)
        bench.times.record_read(file(1))

    play(scene)
    assert benches[0].told == [1]


def test_with_noatime_nothing_is_reported() -> None:
    async def scene(bench: Bench) -> None:
        bench.times.record_read(file(1))
        await settle()
        assert bench.requests == []

    play(scene, enabled=False)


async def test_all_ways_to_read_count() -> None:
    """Of open files and of paths, in batches and alone, and as the source of a copy."""
    from threefs_client.async_filesystem import AsyncFileSystem

    files = MemoryFiles()
    fs = AsyncFileSystem(files.context)
    for name in "abcd":
        await fs.write_file(f"/{name}", b"x")
    inodes = {name: files.meta.files[name.encode()].inode for name in "abcd"}
    await files.context.atime_reporter.report(5)
    assert files.meta.accessed == [], "writing is no reading"
    assert await fs.read_file("/a") == b"x"
    async with await fs.open("/b") as opened, await fs.open("/d") as source, await fs.open("/e", "wb") as copy:
        await fs.read_batch([(opened, 0, 1), ("/c", 0, 1)])
        await fs.copy_range(source, 0, copy, 0, 1)
    await files.context.atime_reporter.report(5)
    assert sorted(files.meta.accessed) == sorted(inodes.values())
    await files.context.atime_reporter.close()
