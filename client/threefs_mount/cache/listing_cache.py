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
MAX_BYTES = 16 << 20
MAX_DIRECTORIES = 4096
_FIRST_PAGE, _PAGE = 1024, 4096
#: Of a directory that somebody may be about to list.
MAX_PREFETCHED = 16_384

#: What a directory lists, and the attributes that came along for the one who has begun it.
OpenedListing = tuple[CachedListing, ListedAttributes | None]
#: The page of a directory behind a name, of at most so many, unless it is known and has its token yet: None then. With
#: attributes, perhaps, for the program that begins to read it.
Fetch = Callable[
    [int, bytes, int, CachedListing | None, int | None], Awaitable[tuple[DirentPage | None, Attributes | None]]
]


@dataclass(slots=True, eq=False)
class _Directory:
    listing: CachedListing | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    queued: "asyncio.Task[OpenedListing] | None" = None  # has not asked yet
    prefetched: bool = False  # nobody has begun to read it since it was fetched for that


class ListingCache:
    def __init__(self, fetch: Fetch) -> None:
        self.size = 0
        self._fetch = fetch
        self._directories: dict[int, _Directory] = {}  # the one that was read last at the end

    async def open(self, number: int, program: int) -> OpenedListing:
        """The entries that the directory has now, or those that come."""
        state = self._directory(number)
        state.prefetched = False
        if not state.lock.locked():
            return await self._revalidate(number, state, program)
        if state.queued is None:  # the question that is under way may be from before an entry came
            state.queued = asyncio.get_running_loop().create_task(self._revalidate(number, state, program))
        return await asyncio.shield(state.queued)

    async def prefetch(self, number: int) -> None:
        """Somebody has looked at the names of the directory, and may list it. If nobody does, this is done once."""
        state = self._directory(number)
        if state.prefetched or state.lock.locked():
            return
        state.prefetched = True
        listing, _ = await self._revalidate(number, state, None)
        while listing.token and len(listing) < MAX_PREFETCHED and await listing.load_page(len(listing)) is not None:
            pass

    def _directory(self, number: int) -> _Directory:
        state = self._directories.pop(number, None) or _Directory()
        self._directories[number] = state
        return state

    async def _revalidate(self, number: int, state: _Directory, program: int | None) -> OpenedListing:
        async with state.lock:
            state.queued = None
            known = state.listing
            if known is not None and not known.token:
                self._drop(state)
                known = None
            names, attributes = await self._fetch(number, b"", _FIRST_PAGE, known, program)
            if names is not None:
                self._drop(state)
                known = state.listing = CachedListing(names, partial(self._page, number), partial(self._grown, state))
                self.size += known.size
            assert known is not None, "only what is known is unchanged"
            listed = None if attributes is None else known.with_attributes(number, attributes)
            self._evict()
            return known, listed

    async def _page(self, number: int, after: bytes) -> DirentPage:
        names, _ = await self._fetch(number, after, _PAGE, None, None)
        assert names is not None, "nothing was known"
        return names

    def _grown(self, state: _Directory, listing: CachedListing, size: int) -> None:
        if state.listing is listing:
            self.size += size
            self._evict()

    def _evict(self) -> None:
        while self.size > MAX_BYTES or len(self._directories) > MAX_DIRECTORIES:
            number = next(iter(self._directories))
            self._drop(self._directories.pop(number))

    def _drop(self, state: _Directory) -> None:
        """Who reads it goes on."""
        if state.listing is not None:
            self.size -= state.listing.size
            state.listing = None

    async def close(self) -> None:
        for state in self._directories.values():
            if state.listing is not None:
                await state.listing.close()
