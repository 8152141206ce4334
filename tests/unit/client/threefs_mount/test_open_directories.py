import asyncio
import inspect
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from threefs_fuse import replies
from threefs_fuse.replies import Entry, Page
from threefs_mount.cache import cached_listing
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes
from threefs_mount.open_directories import OpenDirectories

NAMES = [b"a", b"b", b"c", b"d"]


class Known:
    """What is known without asking: of some names, and of those that are listed with attributes."""

    def __init__(self, *known: bytes) -> None:
        self._known = known

    def packed_entries(self, directory: int, names: Iterable[bytes]) -> list[bytes | None]:
        return [replies.packed(Entry(9)) if name in self._known else None for name in names]

    def packed_listing(self, listed: ListedAttributes, first: int, count: int) -> list[bytes | None]:
        return [replies.packed(Entry(number)) for number in listed.numbers[first : first + count]]


def begin_with(names: list[bytes], pages: int = 3, *, with_attributes: bool = False) -> Any:
    attributes = Attributes((), 0.0, 0)
    listed = ListedAttributes(7, b"", range(100, 100 + len(names)), attributes, ()) if with_attributes else None

    async def fetch(after: bytes) -> DirentPage:
        rest = [name for name in names if name > after]
        page = rest[:pages]
        joined = b"".join(name + b"\0" for name in page)
        return DirentPage(joined, bytes(8 * len(page)), bytes(len(page)), rest != page, 1)

    async def begin(inode: int, program: int) -> tuple[CachedListing, ListedAttributes | None]:
        assert (inode, program) == (7, 1)
        return CachedListing(await fetch(b""), fetch, lambda listing, size: None), listed

    return begin


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def read(room: int, *, plus: bool, start: int = 0) -> bytes:
    async def scene() -> bytes:
        directories = OpenDirectories(begin_with(NAMES, 9, with_attributes=True), Known(b"b"))
        page = await settled(directories.get(directories.add(7, 1)).read(start, Page(room, plus=plus)))
        return b"".join(map(bytes, page.parts))

    return asyncio.run(scene())


def inodes_of(page: bytes) -> set[int]:
    """Those that come with attributes, and 0 for entries without. Each entry takes 160 bytes."""
    return {struct.unpack_from("=Q", page, at)[0] for at in range(0, len(page), 160)}


def test_without_attributes() -> None:
    packed = read(4096, plus=False)
    assert len(packed) == 6 * 32
    assert packed[24:25] == b"." and packed[56:58] == b".." and packed[64 + 24 : 64 + 25] == b"a"


def inodes_in_order(packed: bytes) -> list[int]:
    return [struct.unpack_from("=Q", packed, at)[0] for at in range(0, len(packed), 160)]


def test_with_the_attributes_that_came_along() -> None:
    assert inodes_in_order(read(4096, plus=True)) == [0, 0, 100, 101, 102, 103]
    assert inodes_in_order(read(500, plus=True, start=3)) == [101, 102, 103]


async def test_with_the_attributes_that_were_fetched_ahead() -> None:
    directories = OpenDirectories(begin_with(NAMES, 9), Known(b"b"))
    opened = directories.get(directories.add(7, 1))
    await settled(opened.read(0, Page(160, plus=True)))
    rest = await settled(opened.read(2, Page(4096, plus=True)))
    assert inodes_in_order(rest.parts[0]) == [0, 9, 0, 0]


async def test_the_first_page_has_attributes_only_if_they_came_with_the_names() -> None:
    """That they are known does not say that they are wanted again."""
    names = [b"%03d" % number for number in range(SMALL_DIRECTORY)]
    for came in (True, False):
        begin = begin_with(names, 1000, with_attributes=came)
        directories = OpenDirectories(begin, Known(*names))
        opened = directories.get(directories.add(7, 1))
        first = (await settled(opened.read(0, Page(1 << 20, plus=True)))).parts[0]
        assert len(inodes_of(first)) == (1 + SMALL_DIRECTORY if came else 1) and len(first) == 160 * (
            2 + SMALL_DIRECTORY
        )
        if not came:
            rest = (await settled(opened.read(2, Page(1 << 20, plus=True)))).parts[0]
            assert inodes_of(rest) == {9}  # the kernel asks like that if somebody looks at names


async def test_the_first_page_of_a_larger_directory_is_empty() -> None:
    """Of a small one all come at once: the room for attributes is cheaper than to be asked again."""
    for count, here in ((0, 0), (1, 1), (SMALL_DIRECTORY, SMALL_DIRECTORY), (SMALL_DIRECTORY + 1, 0)):
        names = [b"%03d" % number for number in range(count)]
        directories = OpenDirectories(begin_with(names, 1000), Known())
        directory = directories.get(directories.add(7, 1))
        first = (await settled(directory.read(0, Page(1 << 20, plus=True)))).parts[0]
        assert len(first) == 160 * (2 + here)
        rest = (await settled(directory.read(2 + here, Page(1 << 20, plus=False)))).parts[0]
        assert len(rest) == 32 * (count - here)


async def test_pages_that_are_there_are_given_out_together() -> None:
    directories = OpenDirectories(begin_with(NAMES, 1), Known())
    directory = directories.get(directories.add(7, 1))
    await settled(directory.read(0, Page(4096, plus=False)))
    page = directory.read(2, Page(4096, plus=False))
    assert isinstance(page, Page) and len(page.parts[0]) == 32 * len(NAMES)


async def test_the_end_is_answered_at_once() -> None:
    """Every listing ends with a request for what comes behind the last entry."""
    for plus in (False, True):
        directories = OpenDirectories(begin_with(NAMES, 9), Known())
        directory = directories.get(directories.add(7, 1))
        await settled(directory.read(0, Page(4096, plus=plus)))
        page = directory.read(2 + len(NAMES), Page(4096, plus=plus))
        assert isinstance(page, Page) and page.parts == (b"",)


def test_it_goes_on_where_the_room_ended() -> None:
    packed = read(64, plus=False, start=3)
    assert len(packed) == 64 and packed[24:25] == b"b" and packed[56:57] == b"c"
    assert read(4096, plus=False, start=6) == b"" and read(160, plus=True, start=5)[128 + 24 :][:1] == b"d"


async def names_from(directory: Any, start: int, count: int, room: int = 32) -> tuple[list[bytes], int]:
    """Up to so many entries, and the position behind the last one."""
    seen: list[bytes] = []
    while len(seen) < count:
        packed = b"".join(map(bytes, (await settled(directory.read(start, Page(room, plus=False)))).parts))
        if not packed:
            break
        for at in range(0, len(packed), 32):
            start, length = struct.unpack_from("=QI", packed, at + 8)
            seen.append(packed[at + 24 : at + 24 + length])
    return seen, start


async def test_positions_lead_through_all_entries() -> None:
    names = [b"%03d" % number for number in range(100)]
    directories = OpenDirectories(begin_with(names, 7), Known())
    directory = directories.get(directories.add(7, 1))
    for room in (32, 64, 100, 4096):
        assert (await names_from(directory, 0, 1000, room))[0] == [b".", b"..", *names]


@pytest.mark.parametrize("read_first", [1, 5, 7, 20, 21])
@pytest.mark.parametrize("change", ["new names", "the names that were read go"])
async def test_a_reader_that_was_left_behind_gets_each_name_that_stays_once(
    monkeypatch: pytest.MonkeyPatch, read_first: int, change: str
) -> None:
    """The pages that it reads next were pushed out by another program, which reads the same listing."""
    monkeypatch.setattr(cached_listing, "MAX_BYTES", 1)
    names = [b"%03d" % number for number in range(100)]
    begun: tuple[CachedListing, None] = await begin_with(names, 7)(7, 1)

    async def begin(inode: int, program: int) -> tuple[CachedListing, ListedAttributes | None]:
        return begun

    directories = OpenDirectories(begin, Known())
    slow, fast = (directories.get(directories.add(7, 1)) for _ in range(2))
    seen, start = await names_from(slow, 0, 2 + read_first)
    await names_from(fast, 0, 1000)
    stay = names[read_first:]
    if change == "new names":
        names[:] = sorted(names + [b"%03d+" % number for number in range(100)])
    else:
        del names[:read_first]
    rest, _ = await names_from(slow, start, 1000)
    assert [name for name in rest if name in stay] == stay and seen[2:] == [b"%03d" % n for n in range(read_first)]


async def test_a_new_listing_shows_new_names() -> None:
    names = list(NAMES)
    directories = OpenDirectories(begin_with(names), Known())
    directory = directories.get(directories.add(7, 1))
    await settled(directory.read(0, Page(4096, plus=False)))
    names.append(b"e")
    assert len((await settled(directory.read(0, Page(4096, plus=False)))).parts[0]) == 7 * 32


def test_numbers_are_given_up() -> None:
    directories = OpenDirectories(begin_with([]), Known())
    number = directories.add(7, 1)
    directories.remove(number)
    assert directories.add(7, 1) != number
