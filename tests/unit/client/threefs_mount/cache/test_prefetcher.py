import asyncio
from collections.abc import Sequence

from threefs_mount.cache.cached_listing import SMALL_DIRECTORY
from threefs_mount.cache.prefetcher import Prefetcher
from threefs_mount.cache.statahead import MISSES_BEFORE_PREFETCH

from tests.harness.clocks import SteppedClock
from threefs.errors import Unavailable
from threefs.wire import meta_pb2 as pb


class Directory:
    """What the cluster says of directory 7, once the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls: list[tuple[int, bytes, int]] = []
        self.failing = False
        self.count = 10
        self.more = False

    async def fetch(self, directory: int, after: bytes, limit: int) -> tuple[Sequence[pb.Entry], bool]:
        self.calls.append((directory, after, limit))
        entries = [
            pb.Entry(name=b"%d" % number, inode=number, attributes=file(number))
            for number in range(50, 50 + self.count)
        ]
        await self.gate.wait()
        if self.failing:
            raise Unavailable("nobody is there")
        return entries, self.more


def file(number: int) -> pb.Inode:
    return pb.Inode(inode=number, type=pb.FILE, nlink=1)


async def looked(prefetcher: Prefetcher) -> None:
    for number in range(10, 10 + MISSES_BEFORE_PREFETCH):
        prefetcher.statahead.record_lookup(7, b"%d" % number, file(number), 1000.0)
    await asyncio.sleep(0)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_comes_is_known_and_given_up_when_it_is_old() -> None:
    async def scene() -> None:
        directory, clock = Directory(), SteppedClock()
        slept = asyncio.Event()
        clock.on_sleep = slept.set
        prefetcher = Prefetcher(1.0, directory.fetch, clock)
        await looked(prefetcher)
        assert directory.calls == [(7, b"17", 512 + 2 * MISSES_BEFORE_PREFETCH)]
        directory.gate.set()
        await slept.wait()
        assert clock.monotonic() == 1001.0
        await turns()
        assert not prefetcher.statahead._locations and not prefetcher._background._tasks
        await prefetcher.close()

    asyncio.run(scene())


def test_a_slow_page_does_not_show_what_was_changed_meanwhile() -> None:
    async def scene() -> None:
        directory, clock = Directory(), SteppedClock()
        prefetcher = Prefetcher(3600.0, directory.fetch, clock)
        await looked(prefetcher)
        prefetcher.statahead.invalidate_inode(50)
        prefetcher.statahead.invalidate_entry(7, b"51")
        known: list[bytes] = []
        clock.on_sleep = lambda: known.extend(prefetcher.statahead._directories[7].names)
        directory.gate.set()
        await turns()
        assert known == [b"%d" % number for number in range(52, 60)]
        await prefetcher.close()

    asyncio.run(scene())


def test_a_page_that_does_not_come_is_tried_again() -> None:
    async def scene() -> None:
        directory = Directory()
        directory.failing = True
        directory.gate.set()
        prefetcher = Prefetcher(1.0, directory.fetch, SteppedClock())
        await looked(prefetcher)
        await turns()
        await looked(prefetcher)
        assert len(directory.calls) == 2
        await prefetcher.close()

    asyncio.run(scene())


def test_the_listing_of_a_larger_directory_is_fetched_once_its_last_name_was_seen() -> None:
    async def scene() -> None:
        for count, more in ((SMALL_DIRECTORY, False), (SMALL_DIRECTORY + 1, False), (SMALL_DIRECTORY + 1, True)):
            directory = Directory()
            walked: list[int] = []
            directory.count, directory.more = count, more
            directory.gate.set()
            prefetcher = Prefetcher(3600.0, directory.fetch, SteppedClock())

            async def expect(number: int, walked: list[int] = walked) -> None:
                walked.append(number)
                raise Unavailable("nobody is there")

            prefetcher.walked_to_end = expect
            await looked(prefetcher)
            await turns()
            assert walked == ([7] if count > SMALL_DIRECTORY and not more else [])
            await prefetcher.close()

    asyncio.run(scene())


def test_nothing_goes_on_behind_the_close() -> None:
    async def scene() -> None:
        directory = Directory()
        prefetcher = Prefetcher(1.0, directory.fetch, SteppedClock())
        await looked(prefetcher)
        await prefetcher.close()
        await turns()
        assert not prefetcher._background._tasks and not prefetcher.statahead._pages

    asyncio.run(scene())
