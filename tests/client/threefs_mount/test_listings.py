import asyncio

import pytest
from threefs_mount import listings as module
from threefs_mount.listing import Names
from threefs_mount.listings import MOST_EXPECTED, SMALL, Listings


class Cluster:
    """Directories of the same names, whose answers wait for the gate."""

    def __init__(self, count: int = SMALL + 1) -> None:
        self.count = count
        self.token = 1
        self.calls: list[tuple[int, bytes, int]] = []  # directory, after, known
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, directory: int, after: bytes, limit: int, known: int, program: int | None) -> Names | None:
        self.calls.append((directory, after, known))
        token, count = self.token, self.count
        await self.gate.wait()
        if known and known == token:
            return None
        first = int(after) + 1 if after else 0
        last = min(count, first + limit)
        names = b"".join(b"%06d\0" % number for number in range(first, last))
        return Names(names, bytes(8 * (last - first)), bytes(last - first), last < count, token)


def test_what_is_unchanged_is_not_fetched_again() -> None:
    async def scene() -> None:
        cluster = Cluster()
        listings = Listings(cluster.fetch)
        listing = await listings.begin(7, 1)
        assert await listings.begin(7, 1) is listing and cluster.calls == [(7, b"", 0), (7, b"", 1)]
        cluster.token = 2
        assert await listings.begin(7, 1) is not listing
        assert (await listings.begin(7, 1)).token == 2
        await listings.close()

    asyncio.run(scene())


def test_what_nothing_is_known_of_is_fetched_each_time() -> None:
    """Small directories come with attributes, and some have no token."""

    async def scene() -> None:
        for count, token in ((SMALL, 1), (SMALL + 1, 0)):
            cluster = Cluster(count)
            cluster.token = token
            listings = Listings(cluster.fetch)
            assert await listings.begin(7, 1) is not await listings.begin(7, 1)
            assert [known for _, _, known in cluster.calls] == [0, 0]

    asyncio.run(scene())


def test_those_who_begin_at_the_same_time_share_the_pages_but_not_an_older_answer() -> None:
    async def scene() -> None:
        cluster = Cluster()
        listings = Listings(cluster.fetch)
        cluster.gate.clear()
        first = asyncio.create_task(listings.begin(7, 1))
        await asyncio.sleep(0)
        later = [asyncio.create_task(listings.begin(7, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(cluster.calls) == 1
        cluster.gate.set()
        found = await asyncio.gather(first, *later)
        assert all(one is found[0] for one in found) and cluster.calls[1:] == [(7, b"", 1)]

        cluster.gate.clear()
        first = asyncio.create_task(listings.begin(7, 1))
        await asyncio.sleep(0)
        cluster.token = 2  # an entry comes after the question was answered
        newer = asyncio.create_task(listings.begin(7, 1))
        cluster.gate.set()
        assert (await first).token == 1 and (await newer).token == 2

    asyncio.run(scene())


def test_one_who_gives_up_does_not_stop_the_others() -> None:
    async def scene() -> None:
        cluster = Cluster()
        listings = Listings(cluster.fetch)
        cluster.gate.clear()
        tasks = [asyncio.create_task(listings.begin(7, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.sleep(0)
        cluster.gate.set()
        assert (await tasks[2]).token == 1

    asyncio.run(scene())


def test_what_somebody_may_list_is_there_before() -> None:
    async def scene() -> None:
        cluster = Cluster(6000)
        listings = Listings(cluster.fetch)
        await listings.expect(7)
        assert [known for _, _, known in cluster.calls] == [0, 0, 0]
        listing = await listings.begin(7, 1)
        assert cluster.calls[3:] == [(7, b"", 1)] and len(listing) == 6000 and listing.at_once(5999) is not None
        cluster.token = 2
        newer = await listings.begin(7, 1)
        assert newer is not listing and newer.token == 2
        await listings.close()

    asyncio.run(scene())


def test_what_nobody_lists_is_fetched_once_and_a_huge_directory_not_to_its_end() -> None:
    async def scene() -> None:
        cluster = Cluster(10 * MOST_EXPECTED)
        listings = Listings(cluster.fetch)
        await listings.expect(7)
        calls = len(cluster.calls)
        assert calls < 10
        await listings.expect(7)
        assert len(cluster.calls) == calls
        await listings.begin(7, 1)
        await listings.expect(7)  # it was worth while
        assert len(cluster.calls) > calls + 1
        await listings.close()

    asyncio.run(scene())


def test_an_answer_from_before_a_listing_began_is_not_shown_to_it() -> None:
    async def scene() -> None:
        cluster = Cluster()
        listings = Listings(cluster.fetch)
        cluster.gate.clear()
        expected = asyncio.create_task(listings.expect(7))
        await asyncio.sleep(0)
        cluster.token = 2  # an entry comes after the question was answered
        reader = asyncio.create_task(listings.begin(7, 1))
        await asyncio.sleep(0)
        cluster.gate.set()
        await expected
        assert (await reader).token == 2
        await listings.close()

    asyncio.run(scene())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100_000)
    monkeypatch.setattr(module, "MOST_DIRECTORIES", 5)

    async def scene() -> None:
        cluster = Cluster(1500)
        listings = Listings(cluster.fetch)
        for directory in range(20):
            listing = await listings.begin(directory, 1)
            await listing.rest(1100)
            held = [at.listing for at in listings._directories.values() if at.listing is not None]
            assert listings.size == sum(one.size for one in held) <= 100_000
            assert listing in held and len(listings._directories) <= 5
        cluster.count = 1
        for directory in range(20):
            await listings.begin(directory, 1)
        assert len(listings._directories) <= 5 and not any(at.listing for at in listings._directories.values())
        await listings.close()

    asyncio.run(scene())
