"""A listing of a directory that is read in pieces: positions stay valid while entries are added and removed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
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
#: An estimate of the memory that the attributes of an entry take, serialized and packed for the kernel.
_ATTRIBUTES_BYTES = 512
#: The listing of a directory of up to this many entries may come with attributes.
SMALL_DIRECTORY = 128


#: fetch(after): the entries behind a name, in the order of names.
Fetch = Callable[[bytes], Awaitable[DirentPage]]


class CachedListing:
    """Entries counted from 0, in the order in which they were listed. Several programs may read at different places.

    Of a huge directory only the pages read last are in memory; of the others the names behind which they begin. A
    program that seeks far back gets the entries as they are now. One that others have left far behind goes on by the
    name that it has read last, see `behind`.
    """

    def __init__(
        self,
        first: DirentPage,
        fetch: Fetch,
        on_growth: Callable[["CachedListing", int], None],
        starts: Sequence[tuple[int, bytes]] = ((0, b""),),
    ) -> None:
        """`first` is the first page; `on_growth` gets the number of bytes by which the listing has grown. With
        `starts`, as below, pages that are not in memory come before the first one."""
        self.token = first.token  # 0 as soon as two pages have different tokens
        self.only_page = (
            first if not first.more and len(first) <= SMALL_DIRECTORY else None
        )  # the whole listing, if it is small
        self.size = 0
        self._fetch = fetch
        self._on_growth = on_growth
        self._starts = list(starts)  # of each page: its first number, the name before it
        self._pages: dict[int, Dirents] = {}  # by index in `_starts`
        self._count: int | None = None  # number of entries, once the last page was fetched
        self._attributes: ListedAttributes | None = None  # the attributes that came last
        self._lock = asyncio.Lock()
        self._prefetch_task: asyncio.Task[None] | None = None
        self._append_page(len(self._starts) - 1, first)

    def __len__(self) -> int:
        """The number of entries, as far as they were fetched."""
        return self._count if self._count is not None else self._starts[-1][0]

    def with_attributes(self, directory: int, attributes: Attributes) -> ListedAttributes:
        """The attributes of all entries, which came along. Raises ProtocolError."""
        if self.only_page is None or len(attributes.inodes) != len(self.only_page):
            raise ProtocolError("the listing of a directory came with attributes that do not fit its entries")
        before, inodes = self._attributes, attributes.inodes
        same = before is not None and before.attributes.inodes == inodes
        packed = before.packed if before is not None and same else attrs.prepared_entries(inodes)
        if before is None:
            self._grow(len(inodes) * _ATTRIBUTES_BYTES)
        numbers = unpack(f"<{len(inodes)}Q", self.only_page.inodes)
        self._attributes = ListedAttributes(directory, self.only_page.names, numbers, attributes, packed)
        return self._attributes

    def is_end(self, number: int) -> bool:
        """Whether the listing surely ends before that entry."""
        return self._count is not None and number >= self._count

    def is_pushed_out(self, number: int) -> bool:
        """Whether the page with that entry was in memory, and is not any more."""
        index = self._page_index(number)
        return index not in self._pages and (index + 1 < len(self._starts) or self._count is not None)

    async def behind(self, number: int, name: bytes) -> "CachedListing":
        """A listing for one program, which has read the entries up to that name, and none from `number` on. If it read
        a page that was pushed out once more, names that have come or gone since would shift the others."""
        starts = [*self._starts[: self._page_index(number - 1) + 1], (number, name)]
        return CachedListing(await self._fetch(name), self._fetch, lambda listing, size: None, starts)

    def cached_page(self, number: int) -> tuple[Dirents, int] | None:
        """The page with that entry and the entry's index in it, if the page is in memory."""
        index = self._page_index(number)
        page = self._pages.get(index)
        start = self._starts[index][0]
        if page is None or number >= start + len(page):
            return None
        return page, number - start

    def read_up_to(self, number: int) -> None:
        """A program has read up to that entry. Once half of the last page is read, the next one is fetched."""
        index = len(self._starts) - 1
        if self._count is not None or (self._prefetch_task is not None and not self._prefetch_task.done()):
            return
        if 2 * number >= self._starts[index - 1][0] + self._starts[index][0]:
            self._prefetch_task = asyncio.get_running_loop().create_task(self._prefetch(index))

    async def load_page(self, number: int) -> tuple[int, Dirents, int] | None:
        """The number, the page and the index of that entry, or of a later one if entries were removed. None at the
        end."""
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
        with contextlib.suppress(ThreefsError):  # a read of the page raises it
            async with self._lock:
                if index not in self._pages:
                    await self._fetch_page(index)

    async def _fetch_page(self, index: int) -> None:
        start, after = self._starts[index]
        if index + 1 == len(self._starts):
            self._append_page(index, await self._fetch(after))
            return
        following, last = self._starts[index + 1]
        page = await self._fetch(after)
        while page.more and page.last < last:
            page = page.joined(await self._fetch(page.last))
        self._store_page(index, page.up_to(last, following - start))

    def _append_page(self, index: int, names: DirentPage) -> None:
        """Add a page behind the last one."""
        count = self._store_page(index, names)
        end = self._starts[index][0] + count
        if names.more and count:
            self._starts.append((end, names.last))
            self._count = None  # also of a listing that had ended: the directory has grown since
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
