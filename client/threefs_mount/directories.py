"""Open directories, and the entries of them that the kernel is told."""

import stat
from collections.abc import Awaitable, Callable, Sequence

from threefs_fuse.replies import Entry, Page

from threefs.wire import meta_pb2 as pb
from threefs_mount import entries
from threefs_mount.listing import Listing

#: The entries of a directory by name behind one, with attributes or without, and whether there are more.
Fetch = Callable[[int, bytes, bool], Awaitable[tuple[Sequence[pb.Entry], bool]]]


class OpenDirectory:
    def __init__(self, inode: int, fetch: Fetch, shown: Callable[[pb.Inode], Entry]) -> None:
        self._inode = inode
        self._fetch = fetch
        self._shown = shown
        self._plus = True
        self._listing: Listing[pb.Entry] = Listing(self._page)

    async def _page(self, after: bytes) -> tuple[Sequence[pb.Entry], bool]:
        return await self._fetch(self._inode, after, self._plus)

    async def read(self, start: int, page: Page) -> Page:
        """Positions 0 and 1 are "." and ".."; the entries follow."""
        self._plus = page.plus
        if start == 0:
            self._listing.restart()
        for position, name in enumerate((b".", b"..")):
            if position >= start and not page.add(name, position + 1, self._inode, stat.S_IFDIR):
                return page
        number = max(start - 2, 0)
        while True:
            number, rest = await self._listing.rest(number)
            if not rest:
                return page
            for entry in rest:
                number += 1
                shown = self._shown(entry.attributes) if page.plus and entry.HasField("attributes") else None
                if not page.add(entry.name, number + 2, entry.inode, entries.TYPE_BITS[entry.type], shown):
                    return page


class OpenDirectories:
    """By the numbers under which the kernel knows them."""

    def __init__(self, fetch: Fetch, shown: Callable[[pb.Inode], Entry]) -> None:
        self._fetch = fetch
        self._shown = shown
        self._open: dict[int, OpenDirectory] = {}
        self._next = 1

    def add(self, inode: int) -> int:
        number = self._next
        self._next += 1
        self._open[number] = OpenDirectory(inode, self._fetch, self._shown)
        return number

    def get(self, number: int) -> OpenDirectory:
        return self._open[number]

    def remove(self, number: int) -> None:
        del self._open[number]
