"""Reading a directory in pieces: positions that stay right while entries come and go."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> bytes: ...


E = TypeVar("E", bound=Named)
#: The entries by name behind one, and whether there are more.
Fetch = Callable[[bytes], Awaitable[tuple[Sequence[E], bool]]]


class Listing(Generic[E]):
    """Entries counted from 0 in the order in which they were seen.

    The two pages read last are in memory, because a program's next call begins within them. Of older ones only the
    names are kept behind which they begin: whoever jumps far back gets the entries as they are now.
    """

    def __init__(self, fetch: Fetch[E]) -> None:
        self._fetch = fetch
        self.restart()

    def restart(self) -> None:
        self._starts: list[tuple[int, bytes]] = [(0, b"")]  # first number of a page, the name before it
        self._pages: dict[int, Sequence[E]] = {}  # by place in `_starts`
        self._end: int | None = None  # number of entries, once the last page was seen

    async def rest(self, number: int) -> tuple[int, Sequence[E]]:
        """The entries from `number` to the end of its page, and the number of the first: a larger one if some are gone.

        Empty at the end.
        """
        while self._end is None or number < self._end:
            place = self._place(number)
            page = self._pages.get(place)
            if page is None:
                page = await self._read(place)
            start = self._starts[place][0]
            if number < start + len(page):
                return number, page[number - start :]
            if place + 1 < len(self._starts):
                number = max(number, self._starts[place + 1][0])
        return number, ()

    def _place(self, number: int) -> int:
        place = len(self._starts) - 1
        while self._starts[place][0] > number:
            place -= 1
        return place

    async def _read(self, place: int) -> Sequence[E]:
        start, after = self._starts[place]
        if place + 1 < len(self._starts):
            page = await self._read_again(after, *self._starts[place + 1])
        else:
            page, more = await self._fetch(after)
            if more and page:
                self._starts.append((start + len(page), page[-1].name))
            else:
                self._end = start + len(page)
        self._pages[place] = page
        while len(self._pages) > 2:
            del self._pages[next(iter(self._pages))]
        return page

    async def _read_again(self, after: bytes, following: int, last: bytes) -> Sequence[E]:
        """What is still there of a page, up to the name `last`."""
        start = next(number for number, name in self._starts if name == after)
        found: list[E] = []
        more = True
        while more and after < last:
            page, more = await self._fetch(after)
            found += [entry for entry in page if entry.name <= last]
            after = page[-1].name if page else last
        return found[: following - start]
