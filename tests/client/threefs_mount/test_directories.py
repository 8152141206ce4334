import asyncio
import inspect
import struct
from typing import Any

from threefs_fuse.replies import Entry, Page
from threefs_mount.directories import OpenDirectories
from threefs_mount.listing import Listing, Names
from threefs_mount.listings import SMALL

NAMES = [b"a", b"b", b"c", b"d"]


def begin_with(names: list[bytes], pages: int = 3) -> Any:
    async def fetch(after: bytes) -> Names:
        rest = [name for name in names if name > after]
        page = rest[:pages]
        return Names(b"".join(name + b"\0" for name in page), bytes(8 * len(page)), bytes(len(page)), rest != page, 1)

    async def begin(inode: int) -> Listing:
        return Listing(await fetch(b""), fetch, lambda listing, size: None)

    return begin


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def read(room: int, *, plus: bool, start: int = 0) -> bytes:
    async def scene() -> bytes:
        shown = {b"b": Entry(9)}
        directories = OpenDirectories(begin_with(NAMES), lambda inode, name: shown.get(name), lambda inode: 1)
        page = await settled(directories.get(directories.add(7)).read(start, Page(room, plus=plus)))
        return b"".join(map(bytes, page.parts))

    return asyncio.run(scene())


def test_without_attributes() -> None:
    packed = read(4096, plus=False)
    assert len(packed) == 6 * 32
    assert packed[24:25] == b"." and packed[56:58] == b".." and packed[64 + 24 : 64 + 25] == b"a"


def test_with_the_attributes_that_are_known() -> None:
    packed = read(4096, plus=True)
    assert len(packed) == 6 * 160
    assert [struct.unpack_from("=Q", packed, 160 * number)[0] for number in range(6)] == [0, 0, 0, 9, 0, 0]


def test_the_first_page_of_a_larger_directory_has_no_attributes() -> None:
    """They take longer than all names together."""

    async def scene() -> None:
        for count in (SMALL, SMALL + 1):
            names = [b"%03d" % number for number in range(count)]
            directories = OpenDirectories(begin_with(names, 1000), lambda inode, name: Entry(9), lambda inode: SMALL)
            directory = directories.get(directories.add(7))
            first = (await settled(directory.read(0, Page(1 << 20, plus=True)))).parts[0]
            assert len(first) == 160 * (2 if count > SMALL else 2 + SMALL)
            if count > SMALL:
                for plus, size in (False, 32), (True, 160):  # the kernel asks for them if somebody looks at names
                    page = await settled(directory.read(2, Page(1 << 20, plus=plus)))
                    assert len(page.parts[0]) == size * count

    asyncio.run(scene())


def test_names_alone_come_when_the_kernel_asks_for_them_without_attributes() -> None:
    """Few come at once: the room for attributes that are not there is cheaper than to be asked again."""

    async def scene() -> None:
        for count, here in ((0, 0), (16, 16), (17, 0), (SMALL, 0)):
            names = [b"%03d" % number for number in range(count)]
            directories = OpenDirectories(begin_with(names, 1000), lambda inode, name: None, lambda inode: 0)
            directory = directories.get(directories.add(7))
            first = (await settled(directory.read(0, Page(1 << 20, plus=True)))).parts[0]
            assert len(first) == 160 * (2 + here)
            rest = (await settled(directory.read(2 + here, Page(1 << 20, plus=False)))).parts[0]
            assert len(rest) == 32 * (count - here)

    asyncio.run(scene())


def test_pages_that_are_there_are_given_out_together() -> None:
    async def scene() -> None:
        directories = OpenDirectories(begin_with(NAMES, 1), lambda inode, name: None, lambda inode: 0)
        directory = directories.get(directories.add(7))
        await settled(directory.read(0, Page(4096, plus=False)))
        page = directory.read(2, Page(4096, plus=False))
        assert isinstance(page, Page) and len(page.parts[0]) == 32 * len(NAMES)

    asyncio.run(scene())


def test_it_goes_on_where_the_room_ended() -> None:
    packed = read(64, plus=False, start=3)
    assert len(packed) == 64 and packed[24:25] == b"b" and packed[56:57] == b"c"
    assert read(4096, plus=False, start=6) == b"" and read(160, plus=True, start=5)[128 + 24 :][:1] == b"d"


def test_positions_lead_through_all_entries() -> None:
    async def scene() -> None:
        names = [b"%03d" % number for number in range(100)]
        directories = OpenDirectories(begin_with(names, 7), lambda inode, name: None, lambda inode: 0)
        directory = directories.get(directories.add(7))
        for room in (32, 64, 100, 4096):
            seen, start = [], 0
            while packed := b"".join(map(bytes, (await settled(directory.read(start, Page(room, plus=False)))).parts)):
                for at in range(0, len(packed), 32):
                    start, length = struct.unpack_from("=QI", packed, at + 8)
                    seen.append(packed[at + 24 : at + 24 + length])
            assert seen == [b".", b"..", *names]

    asyncio.run(scene())


def test_whoever_begins_again_sees_what_is_new() -> None:
    async def scene() -> None:
        names = list(NAMES)
        directories = OpenDirectories(begin_with(names), lambda inode, name: None, lambda inode: 0)
        directory = directories.get(directories.add(7))
        await settled(directory.read(0, Page(4096, plus=False)))
        names.append(b"e")
        assert len((await settled(directory.read(0, Page(4096, plus=False)))).parts[0]) == 7 * 32

    asyncio.run(scene())


def test_numbers_are_given_up() -> None:
    directories = OpenDirectories(begin_with([]), lambda inode, name: None, lambda inode: 0)
    number = directories.add(7)
    directories.remove(number)
    assert directories.add(7) != number
