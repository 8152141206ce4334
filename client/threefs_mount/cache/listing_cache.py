"""Listings of directories, shared by all programs that read them.

Each program that begins to read a directory has the mount ask for the token of the directory. As long as the token is
the same, the cached listing is up to date. So new names are seen at once, and thousands of known names cost one small
call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from threefs.env.shielded_wait import shielded
from threefs_mount.cache.cached_listing import CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes

#: Bounds the memory, all directories together.
MAX_BYTES = 16 << 20
MAX_DIRECTORIES = 4096
_FIRST_PAGE, _PAGE = 1024, 4096
#: Names of a directory that are fetched before a program lists it.
MAX_PREFETCHED = 16_384

#: The entries of a directory, and the attributes if they came along.
OpenedListing = tuple[CachedListing, ListedAttributes | None]
#: fetch(directory, after, limit, known, program): the page behind a name, and perhaps attributes for the program that
#: begins to read. The page is None if the token of the directory is still that of `known`.
Fetch = Callable[
    [int, bytes, int, CachedListing | None, int | None], Awaitable[tuple[DirentPage | None, Attributes | None]]
]


@dataclass(slots=True, eq=False)
class _Directory:
    listing: CachedListing | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    queued: "asyncio.Task[OpenedListing] | None" = None  # it has not sent its question yet
    prefetched: bool = False  # fetched ahead, and no program has read it since


class ListingCache:
    def __init__(self, fetch: Fetch) -> None:
        self.size = 0
        self._fetch = fetch
        self._directories: dict[int, _Directory] = {}  # least recently read first

    async def open(self, number: int, program: int) -> OpenedListing:
        """The entries that the directory has now; of a large directory, pages are loaded while it is read."""
        state = self._directory(number)
        state.prefetched = False
        if not state.lock.locked():
            return await self._revalidate(number, state, program)
        if state.queued is None:  # a question under way may have been sent before an entry was added
            state.queued = asyncio.get_running_loop().create_task(self._revalidate(number, state, program))
        return await shielded(state.queued)

    async def prefetch(self, number: int) -> None:
        """A program has looked up the names of the directory up to the last one, and may list it next. Without a
        listing in between, a second call does nothing."""
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
                known = CachedListing(names, partial(self._page, number), partial(self._on_growth, state))
                if self._directories.get(number) is state:  # else it was evicted during the call: its readers go on
                    state.listing = known
                    self.size += known.size
            assert known is not None, "only a known listing can be unchanged"
            listed = None if attributes is None else known.with_attributes(number, attributes)
            self._evict()
            return known, listed

    async def _page(self, number: int, after: bytes) -> DirentPage:
        names, _ = await self._fetch(number, after, _PAGE, None, None)
        assert names is not None, "a page was asked for without a known listing"
        return names

    def _on_growth(self, state: _Directory, listing: CachedListing, size: int) -> None:
        if state.listing is listing:
            self.size += size
            self._evict()

    def _evict(self) -> None:
        while self.size > MAX_BYTES or len(self._directories) > MAX_DIRECTORIES:
            number = next(iter(self._directories))
            self._drop(self._directories.pop(number))

    def _drop(self, state: _Directory) -> None:
        """Programs that read the listing go on with it."""
        if state.listing is not None:
            self.size -= state.listing.size
            state.listing = None

    async def close(self) -> None:
        for state in self._directories.values():
            if state.listing is not None:
                await state.listing.close()
