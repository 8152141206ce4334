"""Open directories, and the entries of them that the kernel is told."""

import stat
from collections.abc import Awaitable, Callable, Sequence

from threefs_fuse.replies import Entry, Page

from threefs.wire import meta_pb2 as pb
from threefs_mount import entries
from threefs_mount.listing import Listing

#: The entries of a directory by name behind one, with attributes or without, and whether there are more.
Fetch = Callable[[int, bytes, bool], Awaitable[tuple[Sequence[pb.Entry], bool]]]

#: So many entries of a directory get attributes without anybody having asked for any.
WITH_ATTRIBUTES = 8192


class OpenDirectory:
    """Attributes come along with the first entries, because most programs want them.

    Behind those they come only if somebody looks at what was listed without: to list the names of a huge directory does
    not fill the kernel's memory with inodes.
    """

    def __init__(self, inode: int, fetch: Fetch, shown: Callable[[pb.Inode], Entry]) -> None:
        self.inode = inode
        self.looked_into = False
        self._fetch = fetch
        self._shown = shown
        self._entries_left = WITH_ATTRIBUTES
        self._listing: Listing[pb.Entry] = Listing(self._page)

    async def _page(self, after: bytes) -> tuple[Sequence[pb.Entry], bool]:
        page, more = await self._fetch(self.inode, after, self.looked_into or self._entries_left > 0)
        self._entries_left -= len(page)
        return page, more

    async def read(self, start: int, page: Page) -> Page:
        """Positions 0 and 1 are "." and ".."; the entries follow."""
        if start == 0:
            self._listing.restart()
            self._entries_left = WITH_ATTRIBUTES
        for position, name in enumerate((b".", b"..")):
            if position >= start and not page.add(name, position + 1, self.inode, stat.S_IFDIR):
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
        self._by_inode: dict[int, set[int]] = {}
        self._next = 1

    def add(self, inode: int) -> int:
        number = self._next
        self._next += 1
        self._open[number] = OpenDirectory(inode, self._fetch, self._shown)
        self._by_inode.setdefault(inode, set()).add(number)
        return number

    def get(self, number: int) -> OpenDirectory:
        return self._open[number]

    def remove(self, number: int) -> None:
        inode = self._open.pop(number).inode
        self._by_inode[inode].discard(number)
        if not self._by_inode[inode]:
            del self._by_inode[inode]

    def looked_into(self, inode: int) -> None:
        """A name in it was looked up."""
        for number in self._by_inode.get(inode, ()):
            self._open[number].looked_into = True
