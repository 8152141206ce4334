import asyncio

import pytest
from threefs_mount.cache import listing_cache as module
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage
from threefs_mount.cache.listing_cache import MAX_PREFETCHED, ListingCache

from threefs.wire import meta_pb2 as pb


class Cluster:
    """Directories of the same names, whose answers wait for the gate."""

    def __init__(self, count: int = SMALL_DIRECTORY + 1) -> None:
        self.count = count
        self.token = 1
        self.calls: list[tuple[int, bytes, int]] = []  # directory, after, known
        self.looking: set[int] = set()  # programs that want attributes
        self.length = 0  # of each file
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(
        self, directory: int, after: bytes, limit: int, known: CachedListing | None, program: int | None
    ) -> tuple[DirentPage | None, Attributes | None]:
        token, count = self.token, self.count
        self.calls.append((directory, after, 0 if known is None else known.token))
        file = pb.Inode(type=pb.FILE, nlink=1, length=self.length).SerializeToString()
        await self.gate.wait()
        attributes = Attributes([file] * count, 0.0, 0) if program in self.looking else None
        if known is not None and known.token == token:
            return None, attributes
        first = int(after) + 1 if after else 0
        last = min(count, first + limit)
        names = b"".join(b"%06d\0" % number for number in range(first, last))
        return DirentPage(names, bytes(8 * (last - first)), bytes(last - first), last < count, token), attributes


async def begin(listings: ListingCache, directory: int) -> CachedListing:
    listing, _ = await listings.open(directory, 1)
    return listing


async def test_what_is_unchanged_is_not_fetched_again() -> None:
    cluster = Cluster()
    listings = ListingCache(cluster.fetch)
    listing = await begin(listings, 7)
    assert await begin(listings, 7) is listing and cluster.calls == [(7, b"", 0), (7, b"", 1)]
    cluster.token = 2
    assert await begin(listings, 7) is not listing
    assert (await begin(listings, 7)).token == 2
    await listings.close()


async def test_what_nothing_is_known_of_is_fetched_each_time() -> None:
    """Some directories have no token."""
    for count in (0, SMALL_DIRECTORY, SMALL_DIRECTORY + 1):
        cluster = Cluster(count)
        cluster.token = 0
        listings = ListingCache(cluster.fetch)
        assert await begin(listings, 7) is not await begin(listings, 7)
        assert [known for _, _, known in cluster.calls] == [0, 0]


async def test_attributes_come_with_names_that_are_known() -> None:
    cluster = Cluster(SMALL_DIRECTORY)
    cluster.looking.add(2)
    listings = ListingCache(cluster.fetch)
    first = await listings.open(7, 1)
    assert first[1] is None
    listing, listed = await listings.open(7, 2)
    assert listing is first[0] and listed is not None and len(listed.packed) == SMALL_DIRECTORY
    assert (await listings.open(7, 1))[1] is None  # they are as old as the answer with which they came
    _, again = await listings.open(7, 2)
    assert again is not listed and again is not None and again.packed is listed.packed
    cluster.length = 5
    _, changed = await listings.open(7, 2)
    assert changed is not None and changed.packed != listed.packed
    assert {known for _, _, known in cluster.calls[1:]} == {1}
    cluster.token, cluster.count = 2, 1
    listing, listed = await listings.open(7, 2)
    assert len(listing) == 1 and listed is not None and len(listed.packed) == 1


async def test_listings_that_begin_together_share_the_pages_but_not_an_older_answer() -> None:
    cluster = Cluster()
    listings = ListingCache(cluster.fetch)
    cluster.gate.clear()
    first = asyncio.create_task(begin(listings, 7))
    await asyncio.sleep(0)
    later = [asyncio.create_task(begin(listings, 7)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(cluster.calls) == 1
    cluster.gate.set()
    found = await asyncio.gather(first, *later)
    assert all(one is found[0] for one in found) and cluster.calls[1:] == [(7, b"", 1)]

    cluster.gate.clear()
    first = asyncio.create_task(begin(listings, 7))
    await asyncio.sleep(0)
    cluster.token = 2  # an entry comes after the question was answered
    newer = asyncio.create_task(begin(listings, 7))
    cluster.gate.set()
    assert (await first).token == 1 and (await newer).token == 2


async def test_a_caller_that_gives_up_does_not_stop_the_others() -> None:
    cluster = Cluster()
    listings = ListingCache(cluster.fetch)
    cluster.gate.clear()
    tasks = [asyncio.create_task(begin(listings, 7)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.sleep(0)
    cluster.gate.set()
    assert (await tasks[2]).token == 1


async def test_a_listing_that_a_program_may_ask_for_is_there_before() -> None:
    cluster = Cluster(6000)
    listings = ListingCache(cluster.fetch)
    await listings.prefetch(7)
    assert [known for _, _, known in cluster.calls] == [0, 0, 0]
    listing = await begin(listings, 7)
    assert cluster.calls[3:] == [(7, b"", 1)] and len(listing) == 6000 and listing.cached_page(5999) is not None
    cluster.token = 2
    newer = await begin(listings, 7)
    assert newer is not listing and newer.token == 2
    await listings.close()


async def test_a_prefetched_listing_is_fetched_once_and_a_huge_directory_not_to_its_end() -> None:
    cluster = Cluster(10 * MAX_PREFETCHED)
    listings = ListingCache(cluster.fetch)
    await listings.prefetch(7)
    calls = len(cluster.calls)
    assert calls < 10
    await listings.prefetch(7)
    assert len(cluster.calls) == calls
    await begin(listings, 7)
    await listings.prefetch(7)  # it was worth while
    assert len(cluster.calls) > calls + 1
    await listings.close()


async def test_an_answer_from_before_a_listing_began_is_not_shown_to_it() -> None:
    cluster = Cluster()
    listings = ListingCache(cluster.fetch)
    cluster.gate.clear()
    expected = asyncio.create_task(listings.prefetch(7))
    await asyncio.sleep(0)
    cluster.token = 2  # an entry comes after the question was answered
    reader = asyncio.create_task(begin(listings, 7))
    await asyncio.sleep(0)
    cluster.gate.set()
    await expected
    assert (await reader).token == 2
    await listings.close()


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_DIRECTORIES", 5)
    cluster = Cluster(1500)
    listings = ListingCache(cluster.fetch)
    for directory in range(20):
        listing = await begin(listings, directory)
        await listing.load_page(1100)
        held = [at.listing for at in listings._directories.values() if at.listing is not None]
        assert listings.size == sum(one.size for one in held) <= 100_000
        assert listing in held and len(listings._directories) <= 5
    cluster.count = SMALL_DIRECTORY
    cluster.looking.add(1)
    for directory in range(20):
        await begin(listings, directory)
        assert listings.size == sum(at.listing.size for at in listings._directories.values() if at.listing)
        assert 0 < listings.size <= 100_000 and len(listings._directories) <= 5
    await listings.close()


async def test_a_directory_that_is_evicted_while_it_is_fetched_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DIRECTORIES", 5)
    cluster, answered = Cluster(1500), asyncio.Event()

    async def fetch(
        directory: int, after: bytes, limit: int, known: CachedListing | None, program: int | None
    ) -> tuple[DirentPage | None, Attributes | None]:
        if directory == 0 and not after:
            await answered.wait()
        return await cluster.fetch(directory, after, limit, known, program)

    listings = ListingCache(fetch)
    slow = asyncio.create_task(begin(listings, 0))
    await asyncio.sleep(0)
    for directory in range(1, 7):
        await begin(listings, directory)
    answered.set()
    listing = await slow
    assert await listing.load_page(1100) is not None and len(listing) == 1500
    assert listings.size == sum(at.listing.size for at in listings._directories.values() if at.listing)
    await listings.close()
