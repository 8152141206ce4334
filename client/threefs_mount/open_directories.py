"""Open directories, and the entries of them that the kernel is told."""

import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from threefs_fuse.filesystem import Answer
from threefs_fuse.replies import Page, Shown

from threefs_mount.cache.cached_listing import FIRST_POSITION, SMALL, CachedListing
from threefs_mount.cache.dirent_columns import ListedAttributes
from threefs_mount.cache.listing_cache import Begun

#: The entries of a directory, for a program.
Begin = Callable[[int, int], Awaitable[Begun]]


class MetadataSource(Protocol):
    """What is known of names without asking, packed for the kernel."""

    def names(self, directory: int, names: Iterable[bytes]) -> Sequence[bytes | None]: ...
    def listed(self, listed: ListedAttributes, first: int, count: int) -> Sequence[bytes | None]: ...


class OpenDirectory:
    """Attributes come along as far as they are known: those of small directories unless the program is known not to
    look at them, and those that are fetched ahead as soon as somebody looks at names. So to list names alone fills
    nobody's memory with inodes.

    The kernel wants attributes with the first page, whoever reads, and with those behind it if somebody looks at names
    meanwhile. The first page has only those that came with the names: that somebody has looked at the same names
    before, one by one, does not say that they will be looked at again. Entries without take as much room as those
    with, so of a large directory the first page has none.
    """

    def __init__(self, inode: int, program: int, begin: Begin, unasked: MetadataSource) -> None:
        self.inode = inode
        self._program = program
        self._begin = begin
        self._unasked = unasked
        self._listing: CachedListing | None = None
        self._listed: ListedAttributes | None = None  # attributes that came along

    def read(self, start: int, page: Page) -> Answer[Page]:
        """Positions 0 and 1 are "." and ".."; the entries follow."""
        if start >= FIRST_POSITION and self._listing is not None:
            number = start - FIRST_POSITION
            if self._listing.ends_at(number):
                return page
            shown = self._shown()
            while (found := self._listing.at_once(number)) is not None and (count := page.fill(*found, shown)):
                number += count
            if number > start - FIRST_POSITION:
                self._listing.passed(number)
                return page
        return self._read(start, page)

    async def _read(self, start: int, page: Page) -> Page:
        if start == 0 or self._listing is None:
            self._listing, self._listed = await self._begin(self.inode, self._program)
        for position, name in enumerate((b".", b"..")):
            if position >= start and not page.add(name, position + 1, self.inode, stat.S_IFDIR):
                return page
        if start < FIRST_POSITION and page.plus and len(self._listing) > SMALL:
            self._listing.passed(len(self._listing))
            return page
        shown = None if start < FIRST_POSITION and self._listed is None else self._shown()
        number = max(start - FIRST_POSITION, 0)
        while (found := await self._listing.rest(number)) is not None:
            number, dirents, index = found
            count = page.fill(dirents, index, shown)
            number += count
            self._listing.passed(number)
            if index + count < len(dirents):
                break
        return page

    def _shown(self) -> Shown:
        inode, listed, unasked = self.inode, self._listed, self._unasked
        if listed is not None:
            return lambda dirents, number, count: unasked.listed(listed, number, count)
        return lambda dirents, number, count: unasked.names(inode, dirents.names(number, count))


class OpenDirectories:
    """By the numbers under which the kernel knows them."""

    def __init__(self, begin: Begin, unasked: MetadataSource) -> None:
        self._begin = begin
        self._unasked = unasked
        self._open: dict[int, OpenDirectory] = {}
        self._next = 1

    def add(self, inode: int, program: int) -> int:
        number = self._next
        self._next += 1
        self._open[number] = OpenDirectory(inode, program, self._begin, self._unasked)
        return number

    def get(self, number: int) -> OpenDirectory:
        return self._open[number]

    def remove(self, number: int) -> None:
        del self._open[number]
