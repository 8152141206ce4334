"""Reading a directory in pieces: positions that stay right while entries come and go."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from struct import unpack

from threefs_fuse.dirents import Dirents

from threefs.errors import ProtocolError, ThreefsError
from threefs_mount.cache.dirent_columns import Attributes, DirentPage, ListedAttributes
from threefs_mount.kernel import attrs

#: Of a larger directory only the pages read last are kept.
MOST_BYTES = 2 << 20
#: Positions 0 and 1 are "." and "..".
FIRST_POSITION = 2
#: What the attributes of an entry take, about: as they came, and as the kernel takes them.
_ATTRIBUTES_BYTES = 512
#: Names of a directory of up to so many may come with attributes.
SMALL = 128


#: The entries by name behind one.
Fetch = Callable[[bytes], Awaitable[DirentPage]]


class CachedListing:
    """Entries counted from 0 in the order in which they were seen. Several may read at different places.

    Of a huge directory only the pages read last are in memory, and of others the names behind which they begin: whoever
    jumps far back gets the entries as they are now.
    """

    def __init__(self, first: DirentPage, fetch: Fetch, grown: Callable[["CachedListing", int], None]) -> None:
        """`first` is the first page; `grown` is told how many bytes more are kept."""
        self.token = first.token  # 0 as soon as pages are of different times
        self.small = first if not first.more and len(first) <= SMALL else None  # all there is
        self.size = 0
        self._fetch = fetch
        self._grown = grown
        self._starts: list[tuple[int, bytes]] = [(0, b"")]  # first number of a page, the name before it
        self._pages: dict[int, Dirents] = {}  # by place in `_starts`
        self._end: int | None = None  # number of entries, once the last page was seen
        self._listed: ListedAttributes | None = None  # with the attributes that came last
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._take(0, first)

    def __len__(self) -> int:
        """How many entries there are at least."""
        return self._end if self._end is not None else self._starts[-1][0]

    def with_attributes(self, directory: int, attributes: Attributes) -> ListedAttributes:
        """Of all its entries. Raises ProtocolError."""
        if self.small is None or len(attributes.inodes) != len(self.small):
            raise ProtocolError("the attributes are not those of the entries of the directory")
        before, inodes = self._listed, attributes.inodes
        same = before is not None and before.attributes.inodes == inodes
        shown = before.shown if before is not None and same else attrs.prepared(inodes)
        if before is None:
            self._grow(len(inodes) * _ATTRIBUTES_BYTES)
        numbers = unpack(f"<{len(inodes)}Q", self.small.inodes)
        self._listed = ListedAttributes(directory, self.small.names, numbers, attributes, shown)
        return self._listed

    def ends_at(self, number: int) -> bool:
        """Whether it is known that there is no such entry, nor any behind."""
        return self._end is not None and number >= self._end

    def at_once(self, number: int) -> tuple[Dirents, int] | None:
        """The page with that entry and the entry's number in it, if it is in memory."""
        place = self._place(number)
        page = self._pages.get(place)
        start = self._starts[place][0]
        if page is None or number >= start + len(page):
            return None
        return page, number - start

    def passed(self, number: int) -> None:
        """Somebody has read up to there. Whoever has read half of the last page will want the next one."""
        place = len(self._starts) - 1
        if self._end is not None or (self._next is not None and not self._next.done()):
            return
        if 2 * number >= self._starts[place - 1][0] + self._starts[place][0]:
            self._next = asyncio.get_running_loop().create_task(self._prepare(place))

    async def rest(self, number: int) -> tuple[int, Dirents, int] | None:
        """The same; a larger number comes first if some are gone. None at the end."""
        while self._end is None or number < self._end:
            found = self.at_once(number)
            if found is not None:
                return number, *found
            place = self._place(number)
            async with self._turn:
                if place not in self._pages:
                    await self._read(place)
            page = self._pages.get(place)
            following = place + 1
            if page is not None and number >= self._starts[place][0] + len(page) and following < len(self._starts):
                number = max(number, self._starts[following][0])
        return None

    def _place(self, number: int) -> int:
        place = len(self._starts) - 1
        while self._starts[place][0] > number:
            place -= 1
        return place

    async def _prepare(self, place: int) -> None:
        with contextlib.suppress(ThreefsError):  # the reader will be told
            async with self._turn:
                if place not in self._pages:
                    await self._read(place)

    async def _read(self, place: int) -> None:
        start, after = self._starts[place]
        if place + 1 == len(self._starts):
            self._take(place, await self._fetch(after))
            return
        following, last = self._starts[place + 1]
        again = await self._fetch(after)
        while again.more and again.last < last:
            again = again.and_more(await self._fetch(again.last))
        self._keep(place, again.up_to(last, following - start))

    def _take(self, place: int, names: DirentPage) -> None:
        """A page that nobody has seen before."""
        count = self._keep(place, names)
        end = self._starts[place][0] + count
        if names.more and count:
            self._starts.append((end, names.last))
        else:
            self._end = end

    def _keep(self, place: int, names: DirentPage) -> int:
        if names.token != self.token:
            self.token = 0
        page = Dirents(names.names, names.inodes, names.types, self._starts[place][0] + FIRST_POSITION + 1)
        self._pages[place] = page
        grown = len(page.packed)
        while self.size + grown > MOST_BYTES and len(self._pages) > 2:
            grown -= len(self._pages.pop(next(iter(self._pages))).packed)
        self._grow(grown)
        return len(page)

    def _grow(self, size: int) -> None:
        self.size += size
        self._grown(self, size)

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
