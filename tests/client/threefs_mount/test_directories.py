import asyncio
from collections.abc import Sequence

from threefs_fuse.replies import Page
from threefs_mount import entries
from threefs_mount.directories import WITH_ATTRIBUTES, OpenDirectories

from threefs.wire import meta_pb2 as pb


class Fetched:
    def __init__(self, names: Sequence[bytes]) -> None:
        self.names = list(names)
        self.attributes: list[bool] = []

    async def fetch(self, inode: int, after: bytes, attributes: bool) -> tuple[Sequence[pb.Entry], bool]:
        self.attributes.append(attributes)
        rest = [name for name in self.names if name > after]
        found = [pb.Entry(name=name, inode=9, type=pb.FILE) for name in rest[:3]]
        if attributes:
            for entry in found:
                entry.attributes.CopyFrom(pb.Inode(inode=9, type=pb.FILE, nlink=1))
        return found, len(rest) > 3


def read(room: int, *, plus: bool, start: int = 0) -> tuple[bytes, list[bool]]:
    async def scene() -> tuple[bytes, list[bool]]:
        fetched = Fetched([b"a", b"b", b"c", b"d"])
        directories = OpenDirectories(fetched.fetch, lambda inode: entries.entry(inode, 1))
        page = await directories.get(directories.add(7)).read(start, Page(room, plus=plus))
        return b"".join(map(bytes, page.parts)), fetched.attributes

    return asyncio.run(scene())


def test_without_attributes() -> None:
    packed, _ = read(4096, plus=False)
    assert len(packed) == 6 * 32
    assert packed[24:25] == b"." and packed[56:58] == b".." and packed[64 + 24 : 64 + 25] == b"a"


def test_with_attributes() -> None:
    packed, attributes = read(4096, plus=True)
    assert len(packed) == 6 * 160 and attributes == [True, True]


def test_it_goes_on_where_the_room_ended() -> None:
    packed, _ = read(64, plus=False, start=3)
    assert len(packed) == 64 and packed[24:25] == b"b" and packed[56:57] == b"c"
    assert read(4096, plus=False, start=6)[0] == b""


def test_numbers_are_given_up() -> None:
    directories = OpenDirectories(Fetched([]).fetch, lambda inode: entries.entry(inode, 1))
    number = directories.add(7)
    directories.remove(number)
    assert directories.add(7) != number
    directories.remove(number + 1)
    directories.looked_into(7)


def test_attributes_of_many_entries_are_fetched_when_somebody_looks() -> None:
    async def scene() -> None:
        fetched = Fetched([b"%06d" % number for number in range(WITH_ATTRIBUTES + 30)])
        directories = OpenDirectories(fetched.fetch, lambda inode: entries.entry(inode, 1))
        directory = directories.get(directories.add(7))
        await directory.read(0, Page(1 << 22, plus=True))
        assert fetched.attributes[-1] is False and fetched.attributes.count(False) < 15
        directories.looked_into(8)
        directories.looked_into(7)
        await directory.read(WITH_ATTRIBUTES + 25, Page(1 << 22, plus=True))
        del fetched.attributes[:]
        await directory.read(2, Page(1 << 22, plus=True))
        assert all(fetched.attributes)

    asyncio.run(scene())
