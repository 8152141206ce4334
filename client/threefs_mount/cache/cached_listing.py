"""Reading a directory in pieces: positions that stay right while entries come and go."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from struct import unpack

from threefs_fuse.dirents import Dirents

from threefs.background import cancel_and_wait
from threefs.errors import ProtocolError, ThreefsError
from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes
from threefs_mount.kernel import attrs

#: Of a larger directory only the pages read last are kept.
MAX_BYTES = 2 << 20
#: Positions 0 and 1 are "." and "..".
FIRST_POSITION = 2
#: What the attributes of an entry take, about: as they came, and as the kernel takes them.
_ATTRIBUTES_BYTES = 512
#: Names of a directory of up to so many may come with attributes.
SMALL_DIRECTORY = 128


#: The entries by name behind one.
Fetch = Callable[[bytes], Awaitable[DirentPage]]


class CachedListing:
    """Entries counted from 0 in the order in which they were seen. Several may read at different places.

    Of a huge directory only the pages read last are in memory, and of others the names behind which they begin: whoever
    jumps far back gets the entries as they are now.
    """

    def __init__(self, first: DirentPage, fetch: Fetch, on_growth: Callable[["CachedListing", int], None]) -> None:
        """`first` is the first page; `on_growth` is told how many bytes more are kept."""
        self.token = first.token  # 0 as soon as pages are of different times
        self.only_page = first if not first.more and len(first) <= SMALL_DIRECTORY else None  # all there is
        self.size = 0
        self._fetch = fetch
        self._on_growth = on_growth
        self._starts: list[tuple[int, bytes]] = [(0, b"")]  # first number of a page, the name before it
        self._pages: dict[int, Dirents] = {}  # by place in `_starts`
        self._count: int | None = None  # number of entries, once the last page was seen
        self._attributes: ListedAttributes | None = None  # with the attributes that came last
        self._lock = asyncio.Lock()
        self._prefetch_task: asyncio.Task[None] | None = None
        self._append_page(0, first)

    def __len__(self) -> int:
        """How many entries there are at least."""
        return self._count if self._count is not None else self._starts[-1][0]

    def with_attributes(self, directory: int, attributes: Attributes) -> ListedAttributes:
        """Of all its entries. Raises ProtocolError."""
        if self.only_page is None or len(attributes.inodes) != len(self.only_page):
            raise ProtocolError("the attributes are not those of the entries of the directory")
        before, inodes = self._attributes, attributes.inodes
        same = before is not None and before.attributes.inodes == inodes
        shown = before.packed if before is not None and same else attrs.prepared_entries(inodes)
        if before is None:
            self._grow(len(inodes) * _ATTRIBUTES_BYTES)
        numbers = unpack(f"<{len(inodes)}Q", self.only_page.inodes)
        self._attributes = ListedAttributes(directory, self.only_page.names, numbers, attributes, shown)
        return self._attributes

    def is_end(self, number: int) -> bool:
        """Whether it is known that there is no such entry, nor any behind."""
        return self._count is not None and number >= self._count

    def cached_page(self, number: int) -> tuple[Dirents, int] | None:
        """The page with that entry and the entry's number in it, if it is in memory."""
        index = self._page_index(number)
        page = self._pages.get(index)
        start = self._starts[index][0]
        if page is None or number >= start + len(page):
            return None
        return page, number - start

    def read_up_to(self, number: int) -> None:
        """Somebody has read up to there. Whoever has read half of the last page will want the next one."""
        index = len(self._starts) - 1
        if self._count is not None or (self._prefetch_task is not None and not self._prefetch_task.done()):
            return
        if 2 * number >= self._starts[index - 1][0] + self._starts[index][0]:
            self._prefetch_task = asyncio.get_running_loop().create_task(self._prefetch(index))

    async def load_page(self, number: int) -> tuple[int, Dirents, int] | None:
        """The same; a larger number comes first if some are gone. None at the end."""
        while self._count is None or number < self._count:
            found = self.cached_page(number)
            if found is not None:
                return number, *found
            index = self._page_index(number)
            async with self._lock:
                if index not in self._pages:
                    await self._fetch_page(index)
            page = self._pages.get(index)
            following = index + 1
            if page is not None and number >= self._starts[index][0] + len(page) and following < len(self._starts):
                number = max(number, self._starts[following][0])
        return None

    def _page_index(self, number: int) -> int:
        index = len(self._starts) - 1
        while self._starts[index][0] > number:
            index -= 1
        return index

    async def _prefetch(self, index: int) -> None:
        with contextlib.suppress(ThreefsError):  # the reader will be told
            async with self._lock:
                if index not in self._pages:
                    await self._fetch_page(index)

    async def _fetch_page(self, index: int) -> None:
        start, after = self._starts[index]
        if index + 1 == len(self._starts):
            self._append_page(index, await self._fetch(after))
            return
        following, last = self._starts[index + 1]
        again = await self._fetch(after)
        while again.more and again.last < last:
            again = again.and_more(await self._fetch(again.last))
        self._store_page(index, again.up_to(last, following - start))

    def _append_page(self, index: int, names: DirentPage) -> None:
        """A page that nobody has seen before."""
        count = self._store_page(index, names)
        end = self._starts[index][0] + count
        if names.more and count:
            self._starts.append((end, names.last))
        else:
            self._count = end

    def _store_page(self, index: int, names: DirentPage) -> int:
        if names.token != self.token:
            self.token = 0
        page = Dirents(names.names, names.inodes, names.types, self._starts[index][0] + FIRST_POSITION + 1)
        self._pages[index] = page
        growth = len(page.packed)
        while self.size + growth > MAX_BYTES and len(self._pages) > 2:
            growth -= len(self._pages.pop(next(iter(self._pages))).packed)
        self._grow(growth)
        return len(page)

    def _grow(self, size: int) -> None:
        self.size += size
        self._on_growth(self, size)

    async def close(self) -> None:
        if self._prefetch_task is not None:
            await cancel_and_wait(self._prefetch_task)
