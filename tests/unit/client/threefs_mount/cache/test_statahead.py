import asyncio
from collections.abc import Iterable, Sequence

import pytest
from threefs_mount.cache import statahead
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY
from threefs_mount.cache.invalidation import MAX_RECORDS
from threefs_mount.cache.statahead import (
    MAX_NAMES_TOGETHER,
    MISSES_BEFORE_PREFETCH,
    Prefetcher,
    PrefetchRequest,
    StatAhead,
)
from threefs_mount.cache.validity import Validity

from tests.harness.clocks import SteppedClock
from threefs.errors import Unavailable
from threefs.wire import meta_pb2 as pb

CACHE_S = 1.0


def inode(number: int, kind: pb.InodeType = pb.FILE, nlink: int = 1, mode: int = 0o644) -> pb.Inode:
    return pb.Inode(inode=number, type=kind, nlink=nlink, mode=mode)


def name(number: int) -> bytes:
    return b"%06d" % number


def entry(number: int, *, nlink: int = 1, mode: int = 0o644) -> tuple[bytes, pb.Inode]:
    return name(number), inode(1000 + number, nlink=nlink, mode=mode)


class Scene:
    """A directory 7 with files 1, 2, 3 ...; time stands still unless it is set."""

    def __init__(self, cache_s: float = CACHE_S) -> None:
        self.wishes: list[PrefetchRequest] = []
        self.ahead = StatAhead(Validity(cache_s), self.wishes.append)
        self.now_s = 100.0

    def asked(self, numbers: Iterable[int], directory: int = 7) -> None:
        for number in numbers:
            self.ahead.record_lookup(directory, name(number), inode(1000 + number), self.now_s)

    def walked(self) -> PrefetchRequest:
        """Enough looks for a page to be wished for."""
        self.asked(range(1, MISSES_BEFORE_PREFETCH + 1))
        return self.wishes.pop()

    def listed(self, directory: int = 7, program: int = 1) -> None:
        """A program has listed the directory without attributes."""
        while self.ahead.begin_listing(directory, program):
            pass
        self.ahead.listed_without_attributes(directory, program, self.now_s)

    def arrived(self, wish: PrefetchRequest, numbers: Iterable[int], *, more: bool = True, mode: int = 0o644) -> None:
        found = [entry(number, mode=mode) for number in numbers]
        self.ahead.insert_page(wish, found, found[-1][0] if more else b"", self.now_s)

    def mode(self, number: int) -> int | None:
        known = self.ahead.get(7, name(number), self.now_s)
        return None if known is None else known.inode.mode


def test_after_some_looks_what_follows_is_known() -> None:
    scene = Scene()
    wish = scene.walked()
    assert (wish.directory, wish.after) == (7, name(MISSES_BEFORE_PREFETCH)) and wish.limit > 100
    assert scene.mode(9) is None
    scene.arrived(wish, range(9, 100))
    known = scene.ahead.get(7, name(50), scene.now_s)
    assert known is not None and (known.inode.inode, known.asked_s) == (1050, 100.0)
    assert scene.ahead.get(8, name(50), scene.now_s) is None and scene.mode(100) is None
    assert scene.ahead.cached_count(7) == 91 and scene.ahead.cached_count(8) == 0


def test_looks_at_the_same_name_fetch_what_is_behind_it_only_once() -> None:
    """As those of a program that replaces a file again and again."""
    scene = Scene()
    for _ in range(5 * MISSES_BEFORE_PREFETCH):
        scene.asked([50])
        for wish in scene.wishes[-1:]:
            if not scene.ahead.cached_count(7):
                scene.arrived(wish, range(51, 60))
    assert len(scene.wishes) == 1
    scene.now_s += 2 * CACHE_S
    scene.asked([50])
    assert len(scene.wishes) == 2


def test_few_looks_fetch_nothing_nor_do_those_for_what_is_not_kept() -> None:
    scene = Scene()
    scene.asked(range(MISSES_BEFORE_PREFETCH - 1))
    for number in range(100):
        scene.ahead.record_lookup(7, name(number), None, 100.0)
        scene.ahead.record_lookup(7, name(number), inode(5, nlink=2), 100.0)
    assert not scene.wishes
    scene.asked([200])
    assert scene.wishes


def test_files_with_more_names_are_asked_for() -> None:
    scene = Scene()
    directory = b"d", inode(9, pb.DIRECTORY, 1)
    scene.ahead.insert_page(scene.walked(), [entry(9, nlink=2), entry(10, nlink=0), entry(11), directory], b"", 100.0)
    assert scene.mode(9) is None and scene.mode(10) is None and scene.mode(11) is not None
    assert scene.ahead.get(7, b"d", 100.0) is not None


def test_a_directory_changes_with_its_entries() -> None:
    scene = Scene()
    directory = b"d", inode(9, pb.DIRECTORY, 2)
    scene.ahead.insert_page(scene.walked(), [directory], b"", 100.0)
    scene.ahead.invalidate_entry(9, b"new")
    assert scene.ahead.get(7, b"d", 100.0) is None


def test_without_a_cache_no_attributes_come_with_a_listing() -> None:
    scene = Scene(cache_s=0)
    assert not scene.ahead.begin_listing(7, 1)
    scene.ahead.listed_without_attributes(7, 1, 100.0)
    scene.asked([1])
    assert not scene.wishes and not scene.ahead.begin_listing(7, 1)


def test_a_look_at_an_entry_that_was_listed_without_attributes_brings_those_of_all() -> None:
    scene = Scene()
    scene.listed()
    scene.asked([5])
    [wish] = scene.wishes
    assert (wish.directory, wish.after) == (7, b"") and wish.limit >= 128
    scene.arrived(wish, range(1, 10), more=False)
    assert scene.mode(1) is not None


def test_the_program_that_listed_gets_attributes_from_then_on_after_any_lookup() -> None:
    scene = Scene()
    scene.listed(7, program=1)
    scene.listed(8, program=2)
    scene.asked([5], 7)
    assert scene.ahead.begin_listing(9, 1) and not scene.ahead.begin_listing(9, 2)


def test_a_much_later_lookup_does_not_come_from_the_listing() -> None:
    scene = Scene()
    scene.listed()
    scene.now_s += CACHE_S
    scene.asked([5])
    assert not scene.wishes and not scene.ahead.begin_listing(8, 1)


def test_fewer_looks_show_a_walk_behind_a_listing() -> None:
    scene = Scene()
    scene.ahead.begin_listing(7, 1)
    scene.asked(range(1, MISSES_BEFORE_PREFETCH // 2))
    assert scene.wishes


def test_it_is_known_for_as_long_as_the_kernel_may_keep_it_since_the_call_was_sent() -> None:
    scene = Scene()
    wish = scene.walked()
    scene.now_s += 0.75
    scene.arrived(wish, range(9, 20))
    scene.now_s += 0.2
    known = scene.ahead.get(7, name(9), scene.now_s)
    assert known is not None and known.asked_s == 100.0
    scene.now_s += 0.05
    assert scene.mode(9) is None
    assert scene.ahead.expire(scene.now_s) is None


def test_without_a_cache_nothing_is_fetched() -> None:
    scene = Scene(cache_s=0)
    scene.asked(range(100))
    assert not scene.wishes


def test_what_was_changed_is_not_known_any_more() -> None:
    scene = Scene()
    scene.arrived(scene.walked(), range(9, 20))
    scene.ahead.invalidate_inode(1009)
    scene.ahead.invalidate_entry(7, name(10))
    scene.ahead.invalidate_entry(8, name(11))
    assert scene.mode(9) is None and scene.mode(10) is None and scene.mode(11) is not None
    scene.ahead.invalidate_inode(1010)
    scene.ahead.invalidate_entry(7, name(9))


def test_a_page_under_way_does_not_bring_back_what_was_changed() -> None:
    scene = Scene()
    wish = scene.walked()
    scene.ahead.invalidate_inode(1009)
    scene.ahead.invalidate_entry(7, name(10))
    scene.ahead.record_lookup(7, name(11), None, scene.now_s)
    scene.ahead.record_lookup(7, name(12), inode(5), scene.now_s)
    scene.arrived(wish, range(9, 20))
    assert [scene.mode(number) for number in (9, 10, 11, 12)] == [None] * 4
    assert scene.mode(13) is not None
    assert scene.ahead.get(7, name(12), scene.now_s) is None


def test_a_page_behind_too_many_changes_is_not_believed() -> None:
    scene = Scene()
    wish = scene.walked()
    for number in range(MAX_RECORDS + 1):
        scene.ahead.invalidate_inode(100_000 + number)
    scene.arrived(wish, range(9, 20))
    assert scene.mode(9) is None and not scene.ahead.cached_count(7)


def test_a_later_page_counts_more() -> None:
    scene = Scene()
    scene.arrived(scene.walked(), range(9, 300), mode=0o600)
    scene.asked([500])
    later = scene.wishes.pop()
    scene.ahead.insert_page(later, [entry(20), (name(600), inode(1009))], b"", scene.now_s)
    assert scene.mode(20) == 0o644 and scene.mode(21) == 0o600
    assert scene.mode(9) is None and scene.mode(600) is not None
    later = PrefetchRequest(7, b"", 10, scene.now_s, scene.ahead.invalidations.generation)
    scene.ahead.insert_page(later, [(name(600), inode(77))], name(600), scene.now_s)
    scene.ahead.invalidate_inode(1009)
    known = scene.ahead.get(7, name(600), scene.now_s)
    assert known is not None and known.inode.inode == 77


def test_the_next_page_is_fetched_while_one_is_used_and_never_two_at_once() -> None:
    scene = Scene()
    scene.arrived(scene.walked(), range(9, 109))
    for number in range(9, 30):
        scene.mode(number)
    (wish,) = scene.wishes
    assert wish.after == name(108)
    scene.asked([5000])
    assert len(scene.wishes) == 1
    scene.ahead.fetch_failed(wish)
    scene.asked([5000])
    assert len(scene.wishes) == 2


@pytest.mark.slow
@pytest.mark.parametrize("per_s", [50, 500, 2000, 20_000])
@pytest.mark.parametrize("programs", [1, 4])
def test_what_is_fetched_is_looked_at_before_it_is_too_old(per_s: int, programs: int) -> None:
    """Several programs walk through parts of one directory, some quickly and some slowly."""
    scene = Scene()
    fetched = asked = 0
    steps = int((2 if per_s > 2000 else 6) * CACHE_S * per_s)  # of each: some times as long as an attribute is kept
    for step in range(1, steps):
        for program in range(programs):
            number = program * 200_000 + step
            if scene.mode(number) is None:
                asked += 1
                scene.asked([number])
            for wish in scene.wishes:
                fetched += wish.limit
                scene.arrived(wish, range(int(wish.after) + 1, int(wish.after) + 1 + wish.limit))
            scene.wishes.clear()
        scene.now_s += 1 / per_s
    looks = steps * programs
    assert fetched < 1.5 * looks + 1200 * programs
    assert asked < 0.1 * looks + 20 * programs


def test_the_end_of_a_directory_is_known() -> None:
    scene = Scene()
    scene.arrived(scene.walked(), range(9, 30), more=False)
    for number in range(9, 30):
        scene.mode(number)
    scene.asked([40] * 100)
    assert not scene.wishes


@pytest.mark.slow
def test_looks_without_use_fetch_little() -> None:
    """A directory of a million, looked into here and there."""
    scene = Scene()
    fetched = 0
    for look in range(20_000):
        scene.asked([1 + look * 7919 % 1_000_000])
        if scene.wishes:
            wish = scene.wishes.pop()
            first = int(wish.after) + 1
            fetched += wish.limit
            scene.arrived(wish, range(first, first + wish.limit))
        scene.now_s += 0.0002
    assert fetched < 20_000 * 4


def test_a_walk_in_the_order_of_numbers_is_mostly_known() -> None:
    """ "f2" is looked at long before "f10", and comes behind "f1999"."""
    names = sorted(b"f%d" % number for number in range(5000))
    scene = Scene()
    asked = 0
    for number in range(5000):
        this = b"f%d" % number
        if scene.ahead.get(7, this, scene.now_s) is None:
            asked += 1
            scene.ahead.record_lookup(7, this, inode(1000 + number), scene.now_s)
        for wish in scene.wishes:
            page = [one for one in names if one > wish.after][: wish.limit]
            found = [(one, inode(int(one[1:]) + 1000)) for one in page]
            scene.ahead.insert_page(wish, found, b"" if page[-1:] == names[-1:] else page[-1], scene.now_s)
        del scene.wishes[:]
    assert asked < 500


def test_memory_is_bounded() -> None:
    scene = Scene()
    for directory in range(600):
        scene.asked(range(MISSES_BEFORE_PREFETCH), directory)
    assert len(scene.ahead._directories) <= 2 * statahead._MAX_DIRECTORIES or scene.wishes
    numbers = iter(range(10**6))
    for wish in scene.wishes:
        page = [next(numbers) for _ in range(200)]
        scene.arrived(wish, page)
        assert len(scene.ahead._locations) <= MAX_NAMES_TOGETHER
    assert scene.ahead._pages and all(at.request is None for at in scene.ahead._directories.values())
    scene.ahead.expire(scene.now_s + CACHE_S)
    assert not scene.ahead._locations and not scene.ahead._pages
    scene.asked([1], 10**6)
    assert len(scene.ahead._directories) < 600


# ---- the prefetcher, which makes the calls ----


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


async def test_what_comes_is_known_and_given_up_when_it_is_old() -> None:
    directory, clock = Directory(), SteppedClock()
    slept = asyncio.Event()
    clock.on_sleep = slept.set
    prefetcher = Prefetcher(Validity(1.0), directory.fetch, clock)
    await looked(prefetcher)
    assert directory.calls == [(7, b"17", 512 + 2 * MISSES_BEFORE_PREFETCH)]
    directory.gate.set()
    await slept.wait()
    assert clock.monotonic() == 1001.0
    await turns()
    assert not prefetcher.statahead._locations and not prefetcher._background._tasks
    await prefetcher.close()


async def test_a_slow_page_does_not_show_entries_that_were_changed_since_its_question() -> None:
    directory, clock = Directory(), SteppedClock()
    prefetcher = Prefetcher(Validity(3600.0), directory.fetch, clock)
    await looked(prefetcher)
    prefetcher.statahead.invalidate_inode(50)
    prefetcher.statahead.invalidate_entry(7, b"51")
    known: list[bytes] = []
    clock.on_sleep = lambda: known.extend(prefetcher.statahead._directories[7].names)
    directory.gate.set()
    await turns()
    assert known == [b"%d" % number for number in range(52, 60)]
    await prefetcher.close()


async def test_a_page_that_does_not_come_is_tried_again() -> None:
    directory = Directory()
    directory.failing = True
    directory.gate.set()
    prefetcher = Prefetcher(Validity(1.0), directory.fetch, SteppedClock())
    await looked(prefetcher)
    await turns()
    await looked(prefetcher)
    assert len(directory.calls) == 2
    await prefetcher.close()


async def test_the_listing_of_a_larger_directory_is_fetched_once_its_last_name_was_seen() -> None:
    for count, more in ((SMALL_DIRECTORY, False), (SMALL_DIRECTORY + 1, False), (SMALL_DIRECTORY + 1, True)):
        directory = Directory()
        walked: list[int] = []
        directory.count, directory.more = count, more
        directory.gate.set()
        prefetcher = Prefetcher(Validity(3600.0), directory.fetch, SteppedClock())

        async def expect(number: int, walked: list[int] = walked) -> None:
            walked.append(number)
            raise Unavailable("nobody is there")

        prefetcher.walked_to_end = expect
        await looked(prefetcher)
        await turns()
        assert walked == ([7] if count > SMALL_DIRECTORY and not more else [])
        await prefetcher.close()


async def test_nothing_goes_on_behind_the_close() -> None:
    directory = Directory()
    prefetcher = Prefetcher(Validity(1.0), directory.fetch, SteppedClock())
    await looked(prefetcher)
    await prefetcher.close()
    await turns()
    assert not prefetcher._background._tasks and not prefetcher.statahead._pages
