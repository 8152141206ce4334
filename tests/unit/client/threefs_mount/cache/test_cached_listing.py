import asyncio
from collections.abc import Sequence

import pytest
from threefs_fuse.dirents import HEAD
from threefs_mount.cache import cached_listing as module
from threefs_mount.cache.cached_listing import FIRST_POSITION, SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage

from threefs.errors import ProtocolError, Unavailable
from threefs.wire import meta_pb2 as pb


def names_of(names: Sequence[bytes], *, more: bool, token: int = 1) -> DirentPage:
    inodes = b"".join(int(name).to_bytes(8, "little") for name in names)
    return DirentPage(b"".join(name + b"\0" for name in names), inodes, bytes(8 for _ in names), more, token)


class Directory:
    def __init__(self, count: int, page: int) -> None:
        self.names = [b"%05d" % number for number in range(count)]
        self.page = page
        self.token = 1
        self.fetched = 0
        self.failing = False
        self.size = 0

    async def fetch(self, after: bytes) -> DirentPage:
        self.fetched += 1
        await asyncio.sleep(0)
        if self.failing:
            raise Unavailable("nobody is there")
        rest = [name for name in self.names if name > after]
        return names_of(rest[: self.page], more=len(rest) > self.page, token=self.token)

    async def listing(self) -> CachedListing:
        def grown(listing: CachedListing, size: int) -> None:
            self.size += size

        return CachedListing(await self.fetch(b""), self.fetch, grown)


async def all_from(listing: CachedListing, number: int) -> list[bytes]:
    found: list[bytes] = []
    while (rest := await listing.load_page(number)) is not None:
        number, dirents, index = rest
        at = dirents.begin(index)
        while at < len(dirents.packed):
            _, following, length, _ = HEAD.unpack_from(dirents.packed, at)
            assert following == number + FIRST_POSITION + 1
            found.append(bytes(dirents.packed[at + HEAD.size : at + HEAD.size + length]))
            at += HEAD.size + length + -length % 8
            number += 1
    return found


async def test_all_entries_once() -> None:
    for count in (0, 1, 9, 10, 11, 35):
        directory = Directory(count, 10)
        listing = await directory.listing()
        assert await all_from(listing, 0) == directory.names
        assert listing.token == 1 and len(listing) == count and listing.size == directory.size


def test_any_place_can_be_gone_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (1, 1 << 20):
        monkeypatch.setattr(module, "MAX_BYTES", most)

        async def scene() -> None:
            directory = Directory(35, 10)
            listing = await directory.listing()
            await all_from(listing, 0)
            for number in (34, 3, 20, 19, 0, 35):
                assert await all_from(listing, number) == directory.names[number:]

        asyncio.run(scene())


async def test_removing_what_was_read_skips_nothing() -> None:
    directory = Directory(40, 10)
    listing = await directory.listing()
    found: list[bytes] = []
    for number in range(40):
        found.append((await all_from(listing, number))[0])  # a program that asks again after each entry
        directory.names.remove(found[-1])
    assert found == [b"%05d" % number for number in range(40)]


async def test_a_page_that_became_shorter_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    directory = Directory(40, 10)
    listing = await directory.listing()
    await all_from(listing, 0)
    del directory.names[10:15]
    directory.page = 3
    assert await all_from(listing, 8) == directory.names[8:]
    assert await all_from(listing, 18) == directory.names[15:]


async def test_a_last_page_that_is_read_again_and_has_grown_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    directory = Directory(35, 10)
    listing = await directory.listing()
    await all_from(listing, 0)
    await all_from(listing, 0)  # the last page is pushed out
    await listing.load_page(0), await listing.load_page(10)
    assert listing.cached_page(30) is None
    directory.names = sorted(directory.names + [b"00030%d" % number for number in range(9)])
    assert await all_from(listing, 30) == directory.names[30:]


async def test_little_is_kept_of_a_huge_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    directory = Directory(1000, 10)
    listing = await directory.listing()
    assert await all_from(listing, 0) == directory.names
    assert listing.size <= 1000 and listing.size == directory.size
    assert listing.size == sum(len(page.packed) for page in listing._pages.values())


async def test_pages_of_different_times_are_no_known_listing() -> None:
    directory = Directory(35, 10)
    listing = await directory.listing()
    await listing.load_page(10)
    directory.token = 2
    await all_from(listing, 0)
    assert not listing.token


async def test_readers_share_the_calls_and_the_next_page_is_fetched_ahead() -> None:
    directory = Directory(40, 10)
    listing = await directory.listing()
    assert listing.cached_page(0) is not None and directory.fetched == 1
    listing.read_up_to(4)
    await asyncio.sleep(0)
    assert listing.cached_page(10) is None and directory.fetched == 1
    listing.read_up_to(5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert directory.fetched == 2 and listing.cached_page(10) is not None
    assert await asyncio.gather(*(all_from(listing, 0) for _ in range(4))) == [directory.names] * 4
    assert directory.fetched == 4
    await listing.close()


async def test_an_error_of_a_prefetch_is_raised_by_the_next_read() -> None:
    directory = Directory(40, 10)
    listing = await directory.listing()
    directory.failing = True
    listing.cached_page(9)
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await listing.load_page(10)
    directory.failing = False
    assert len(await all_from(listing, 0)) == 40


def test_names_without_some() -> None:
    names = names_of([b"1", b"2", b"4"], more=True)
    assert names.last == b"4"
    assert names.up_to(b"3", 9) == names_of([b"1", b"2"], more=True)
    assert names.up_to(b"9", 1) == names_of([b"1"], more=True)
    assert names.joined(names_of([b"5"], more=False)) == names_of([b"1", b"2", b"4", b"5"], more=False)
    assert names_of([], more=False).last == b""


async def test_the_end_is_known_once_it_was_seen() -> None:
    directory = Directory(15, 10)
    listing = await directory.listing()
    assert not listing.is_end(15)
    await all_from(listing, 0)
    assert not listing.is_end(14) and listing.is_end(15) and listing.is_end(16)


async def test_attributes_are_packed_anew_only_if_they_have_changed() -> None:
    directory = Directory(3, 10)
    listing = await directory.listing()
    before = listing.size
    inodes = [pb.Inode(inode=number, type=pb.FILE, nlink=1) for number in range(3)]

    def bodies() -> list[bytes]:
        return [inode.SerializeToString() for inode in inodes]

    first = listing.with_attributes(7, Attributes(bodies(), 1.0, 5))
    assert first.directory == 7 and first.numbers == (0, 1, 2) and first.names == b"00000\x0000001\x0000002\0"
    size = listing.size
    assert size > before + sum(map(len, bodies())) and directory.size == size
    again = listing.with_attributes(7, Attributes(bodies(), 2.0, 6))
    assert again.packed is first.packed and again.attributes.asked_s == 2.0 and listing.size == size
    inodes[1].length = 9
    changed = listing.with_attributes(7, Attributes(bodies(), 3.0, 7))
    assert changed.packed[0] == first.packed[0] and changed.packed[1] != first.packed[1]
    assert listing.with_attributes(7, Attributes(bodies(), 4.0, 8)).packed is changed.packed
    for wrong in (bodies()[:2], [*bodies(), b""]):
        with pytest.raises(ProtocolError):
            listing.with_attributes(7, Attributes(wrong, 1.0, 5))


async def test_only_a_small_directory_has_attributes() -> None:
    for count, page, small in ((SMALL_DIRECTORY, 1000, True), (SMALL_DIRECTORY + 1, 1000, False), (10, 5, False)):
        listing = await Directory(count, page).listing()
        assert (listing.only_page is not None) == small
        if not small:
            with pytest.raises(ProtocolError):
                listing.with_attributes(7, Attributes([b""] * count, 1.0, 5))
