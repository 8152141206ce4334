import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from threefs_mount.listing import Listing


@dataclass(frozen=True)
class Name:
    name: bytes


class Directory:
    def __init__(self, count: int, page: int) -> None:
        self.names = [b"%05d" % number for number in range(count)]
        self.page = page
        self.fetched = 0

    async def fetch(self, after: bytes) -> tuple[Sequence[Name], bool]:
        self.fetched += 1
        rest = [name for name in self.names if name > after]
        return [Name(name) for name in rest[: self.page]], len(rest) > self.page


async def all_from(listing: Listing[Name], number: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        number, rest = await listing.rest(number)
        if not rest:
            return found
        found += [entry.name for entry in rest]
        number += len(rest)


def test_all_entries_once() -> None:
    async def scene() -> None:
        for count in (0, 1, 9, 10, 11, 35):
            directory = Directory(count, 10)
            assert await all_from(Listing(directory.fetch), 0) == directory.names

    asyncio.run(scene())


def test_any_place_can_be_gone_back_to() -> None:
    async def scene() -> None:
        directory = Directory(35, 10)
        listing = Listing(directory.fetch)
        await all_from(listing, 0)
        for number in (34, 3, 20, 19, 0, 35):
            assert await all_from(listing, number) == directory.names[number:]

    asyncio.run(scene())


def test_removing_what_was_read_skips_nothing() -> None:
    async def scene() -> None:
        directory = Directory(40, 10)
        listing = Listing(directory.fetch)
        found: list[bytes] = []
        for number in range(40):
            entry = (await listing.rest(number))[1][0]  # a program that asks again after each entry
            found.append(entry.name)
            directory.names.remove(entry.name)
        assert found == [b"%05d" % number for number in range(40)]

    asyncio.run(scene())


def test_a_page_that_became_shorter_is_passed_over() -> None:
    async def scene() -> None:
        directory = Directory(40, 10)
        listing = Listing(directory.fetch)
        await all_from(listing, 0)
        del directory.names[10:15]
        directory.page = 3
        assert await all_from(listing, 8) == directory.names[8:]
        assert await all_from(listing, 18) == directory.names[15:]

    asyncio.run(scene())


def test_little_is_kept() -> None:
    async def scene() -> None:
        directory = Directory(1000, 10)
        listing = Listing(directory.fetch)
        await all_from(listing, 0)
        assert len(listing._pages) == 2
        listing.restart()
        directory.names.insert(0, b"0")
        assert (await all_from(listing, 0))[0] == b"0"

    asyncio.run(scene())
