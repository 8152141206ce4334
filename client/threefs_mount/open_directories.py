"""Open directories, and the entries that the kernel gets when it reads them."""

import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from threefs_fuse.dirents import Dirents
from threefs_fuse.fuse_filesystem import Answer
from threefs_fuse.replies import PackedEntries, Page

from threefs_mount.cache.cached_listing import FIRST_POSITION, SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import ListedAttributes
from threefs_mount.cache.listing_cache import OpenedListing

#: open_listing(inode, program): the entries of a directory, for a program that begins to read it.
Begin = Callable[[int, int], Awaitable[OpenedListing]]


class MetadataSource(Protocol):
    """Cached attributes of names, packed for the kernel."""

    def packed_entries(self, directory: int, names: Iterable[bytes]) -> Sequence[bytes | None]: ...
    def packed_listing(self, listed: ListedAttributes, first: int, count: int) -> Sequence[bytes | None]: ...


class OpenDirectory:
    """An entry comes with its attributes if the mount has them: those of a small directory come with its listing,
    unless the program does not use them (`cache/readdirplus_policy.py`); others are fetched ahead once lookups begin.
    So a listing of names alone does not fill the kernel's memory with inodes.

    The kernel asks for attributes with the first page of every listing, and with later pages if lookups come while it
    reads. The first page has only attributes that came with the listing: earlier lookups of the same names do not mean
    that they will be looked up again. In a page with attributes, an entry takes the same room without its attributes.
    So the first page of a large directory has no entries at all.
    """

    def __init__(self, inode: int, program: int, open_listing: Begin, metadata: MetadataSource) -> None:
        self.inode = inode
        self._program = program
        self._open_listing = open_listing
        self._metadata = metadata
        self._listing: CachedListing | None = None
        self._attributes: ListedAttributes | None = None  # that came with the listing
        self._last = 0, b""  # the number behind the entry that was read last, and its name

    def read(self, start: int, page: Page) -> Answer[Page]:
        """Fill the page from position `start` on. Positions 0 and 1 are "." and ".."; the entries follow."""
        if start >= FIRST_POSITION and self._listing is not None:
            number = start - FIRST_POSITION
            if self._listing.is_end(number):
                return page
            packed = self._packed_entries()
            while (found := self._listing.cached_page(number)) is not None and (count := page.fill(*found, packed)):
                number += count
                self._note_read(number, found[0], found[1] + count)
            if number > start - FIRST_POSITION:
                self._listing.read_up_to(number)
                return page
        return self._read(start, page)

    async def _read(self, start: int, page: Page) -> Page:
        if start == 0 or self._listing is None:
            self._listing, self._attributes = await self._open_listing(self.inode, self._program)
        for position, name in enumerate((b".", b"..")):
            if position >= start and not page.add(name, position + 1, self.inode, stat.S_IFDIR):
                return page
        if start < FIRST_POSITION and page.plus and len(self._listing) > SMALL_DIRECTORY:
            self._listing.read_up_to(len(self._listing))
            return page
        packed = None if start < FIRST_POSITION and self._attributes is None else self._packed_entries()
        number = max(start - FIRST_POSITION, 0)
        while (found := await self._load_page(self._listing, number)) is not None:
            number, dirents, index = found
            count = page.fill(dirents, index, packed)
            number += count
            self._note_read(number, dirents, index + count)
            self._listing.read_up_to(number)
            if index + count < len(dirents):
                break
        return page

    async def _load_page(self, listing: CachedListing, number: int) -> tuple[int, Dirents, int] | None:
        if number and number == self._last[0] and listing.is_pushed_out(number):
            listing = self._listing = await listing.behind(*self._last)
        return await listing.load_page(number)

    def _note_read(self, number: int, dirents: Dirents, end: int) -> None:
        if end:
            self._last = number, dirents.names(end - 1, 1)[0]

    def _packed_entries(self) -> PackedEntries:
        inode, listed, metadata = self.inode, self._attributes, self._metadata
        if listed is not None:
            return lambda dirents, number, count: metadata.packed_listing(listed, number, count)
        return lambda dirents, number, count: metadata.packed_entries(inode, dirents.names(number, count))


class OpenDirectories:
    """The open directories by their handles, which the kernel knows."""

    def __init__(self, open_listing: Begin, metadata: MetadataSource) -> None:
        self._open_listing = open_listing
        self._metadata = metadata
        self._open: dict[int, OpenDirectory] = {}
        self._next = 1

    def add(self, inode: int, program: int) -> int:
        number = self._next
        self._next += 1
        self._open[number] = OpenDirectory(inode, program, self._open_listing, self._metadata)
        return number

    def get(self, number: int) -> OpenDirectory:
        return self._open[number]

    def remove(self, number: int) -> None:
        del self._open[number]
