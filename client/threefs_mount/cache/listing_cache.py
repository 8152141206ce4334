"""Listings of directories that are known, and shared by all who read them.

Whoever begins to read a directory asks for its token; as long as that is the same, what is known is as good as new. So
new names are seen at once, and thousands of known ones cost one small call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from threefs_mount.cache.cached_listing import CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes

#: Bounds the memory, all directories together.
MOST_BYTES = 16 << 20
MOST_DIRECTORIES = 4096
_FIRST_PAGE, _PAGE = 1024, 4096
#: Of a directory that somebody may be about to list.
MOST_EXPECTED = 16_384

#: What a directory lists, and the attributes that came along for the one who has begun it.
Begun = tuple[CachedListing, ListedAttributes | None]
#: The page of a directory behind a name, of at most so many, unless it is known and has its token yet: None then. With
#: attributes, perhaps, for the program that begins to read it.
Fetch = Callable[
    [int, bytes, int, CachedListing | None, int | None], Awaitable[tuple[DirentPage | None, Attributes | None]]
]


@dataclass(slots=True, eq=False)
class _Directory:
    listing: CachedListing | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    next: "asyncio.Task[Begun] | None" = None  # has not asked yet
    expected: bool = False  # nobody has begun to read it since it was fetched for that


class ListingCache:
    def __init__(self, fetch: Fetch) -> None:
        self.size = 0
        self._fetch = fetch
        self._directories: dict[int, _Directory] = {}  # the one that was read last at the end

    async def begin(self, number: int, program: int) -> Begun:
        """The entries that the directory has now, or those that come."""
        at = self._directory(number)
        at.expected = False
        if not at.turn.locked():
            return await self._check(number, at, program)
        if at.next is None:  # the question that is under way may be from before an entry came
            at.next = asyncio.get_running_loop().create_task(self._check(number, at, program))
        return await asyncio.shield(at.next)

    async def expect(self, number: int) -> None:
        """Somebody has looked at the names of the directory, and may list it. If nobody does, this is done once."""
        at = self._directory(number)
        if at.expected or at.turn.locked():
            return
        at.expected = True
        listing, _ = await self._check(number, at, None)
        while listing.token and len(listing) < MOST_EXPECTED and await listing.rest(len(listing)) is not None:
            pass

    def _directory(self, number: int) -> _Directory:
        at = self._directories.pop(number, None) or _Directory()
        self._directories[number] = at
        return at

    async def _check(self, number: int, at: _Directory, program: int | None) -> Begun:
        async with at.turn:
            at.next = None
            known = at.listing
            if known is not None and not known.token:
                self._forget(at)
                known = None
            names, attributes = await self._fetch(number, b"", _FIRST_PAGE, known, program)
            if names is not None:
                self._forget(at)
                known = at.listing = CachedListing(names, partial(self._page, number), partial(self._grown, at))
                self.size += known.size
            assert known is not None, "only what is known is unchanged"
            listed = None if attributes is None else known.with_attributes(number, attributes)
            self._bound()
            return known, listed

    async def _page(self, number: int, after: bytes) -> DirentPage:
        names, _ = await self._fetch(number, after, _PAGE, None, None)
        assert names is not None, "nothing was known"
        return names

    def _grown(self, at: _Directory, listing: CachedListing, size: int) -> None:
        if at.listing is listing:
            self.size += size
            self._bound()

    def _bound(self) -> None:
        while self.size > MOST_BYTES or len(self._directories) > MOST_DIRECTORIES:
            number = next(iter(self._directories))
            self._forget(self._directories.pop(number))

    def _forget(self, at: _Directory) -> None:
        """Who reads it goes on."""
        if at.listing is not None:
            self.size -= at.listing.size
            at.listing = None

    async def close(self) -> None:
        for at in self._directories.values():
            if at.listing is not None:
                await at.listing.close()
