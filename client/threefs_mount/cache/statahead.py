"""Attributes that are fetched before the kernel asks for them. `StatAhead` decides what to fetch; `Prefetcher` fetches.

Programs look up one name after the other, and each lookup costs a call. After a few lookups in one directory, one call
fetches a page: the attributes of the names behind the last one. Later lookups are answered from the page until the
kernel's own caching time has passed since the call was sent.

Only names that exist are kept, and no files with more than one name. The absence of a name is never concluded from a
page. An inode that this mount changes, or of which a newer answer comes, is dropped at once, also from a page that is
under way and shows its old state.
"""

import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY
from threefs_mount.cache.invalidation import InvalidationLog
from threefs_mount.cache.readdirplus_policy import ReaddirplusPolicy
from threefs_mount.cache.validity import Validity
from threefs_mount.kernel.attrs import has_one_name

#: After this many lookups in a directory, more are expected.
MISSES_BEFORE_PREFETCH = 8
#: A listing of the directory counts as this many lookups.
_MISSES_BY_LISTING = MISSES_BEFORE_PREFETCH - 3
#: How many names may be fetched of a directory. Each lookup that was answered from a page adds to this budget; each
#: other lookup adds a little, so that lookups of random names in a huge directory cost hardly more than without
#: stat-ahead.
_INITIAL_BUDGET = 512
_BUDGET_PER_HIT = 32
_BUDGET_PER_MISS = 2
_MAX_BUDGET = 8192
_MIN_NAMES, _MAX_NAMES = 64, 1024  # in one call
#: Attributes that expire before a lookup were fetched for nothing. So a page has as many names as will be looked up
#: within this part of `cache_s`, ...
_PAGE_PART = 1 / 2
#: ... and the next page is requested when the rest of the page will be looked up within this part.
_NEXT_PAGE_PART = 1 / 4
#: Bounds the memory, all directories together.
MAX_NAMES_TOGETHER = 32_768
_MAX_PAGES = 1024
_MAX_DIRECTORIES = 256

#: fetch(directory, after, limit): entries behind a name, with attributes; and whether there are more.
Fetch = Callable[[int, bytes, int], Awaitable[tuple[Sequence[pb.Entry], bool]]]
#: Is called with a directory whose names were looked up to the last one.
WalkedToEnd = Callable[[int], Awaitable[None]]

_LOG = structlog.get_logger()


@dataclass(slots=True, eq=False)
class PrefetchRequest:
    """A page that is to be fetched or is under way: up to `limit` names behind `after`."""

    directory: int
    after: bytes
    limit: int
    asked_s: float
    generation: int  # of the invalidations, when the request was made


@dataclass(slots=True, eq=False)
class _Page:
    directory: int
    after: bytes
    asked_s: float
    last: bytes  # the last name in it; empty: it reaches to the end of the directory
    names: list[bytes] = field(default_factory=list)
    hits: int = 0
    next_requested: bool = False

    def covers(self, name: bytes) -> bool:
        return self.after < name and (not self.last or name <= self.last)


@dataclass(slots=True, eq=False)
class _Directory:
    misses: int = 0  # lookups that reached the cluster
    budget: int = _INITIAL_BUDGET
    rate: float = math.inf  # lookups per second in a page; infinite until it was measured
    request: PrefetchRequest | None = None
    listed_s: float = -math.inf  # when a small directory was last listed without attributes ...
    listed_by: int = 0  # ... and by which program
    names: dict[bytes, tuple[_Page, pb.Inode]] = field(default_factory=dict)
    pages: list[_Page] = field(default_factory=list)


class CachedAttr(NamedTuple):
    inode: pb.Inode
    asked_s: float  # when the question was sent


class StatAhead:
    """If no answer is valid, it is off. `start_fetch` must fetch a page in the
    background, and call `insert_page` or `fetch_failed`. No I/O happens here."""

    def __init__(self, validity: Validity, start_fetch: Callable[[PrefetchRequest], None]) -> None:
        self._validity = validity
        self._start_fetch = start_fetch
        self._directories: dict[int, _Directory] = {}  # least recently used first
        self._locations: dict[int, tuple[_Directory, bytes]] = {}  # where each cached inode is
        self._pages: deque[_Page] = deque()  # oldest first
        self.invalidations = InvalidationLog()
        self._readdirplus = ReaddirplusPolicy()

    # ---- lookups ----

    def get(self, directory: int, name: bytes, now_s: float) -> CachedAttr | None:
        """The cached attributes of a name. None: the cluster must be asked."""
        state = self._directories.get(directory)
        if state is None:
            return None
        found = state.names.get(name)
        if found is None or not self._validity.is_valid(found[0].asked_s, now_s):
            return None
        page, inode = found
        page.hits += 1
        if state.budget < _MAX_BUDGET:
            state.budget += _BUDGET_PER_HIT
        if not page.next_requested and page.hits * 8 >= len(page.names) and self._nearly_used_up(page, now_s):
            self._request_next(state, page, now_s)
        return CachedAttr(inode, page.asked_s)

    def _nearly_used_up(self, page: _Page, now_s: float) -> bool:
        """Whether the page will soon be used up, if lookups go on at their rate."""
        left = len(page.names) - page.hits
        return left * (now_s - page.asked_s) <= page.hits * _NEXT_PAGE_PART * self._validity.cache_s

    def _request_next(self, state: _Directory, page: _Page, now_s: float) -> None:
        page.next_requested = True
        _update_rate(state, page, now_s)
        if page.last and not any(other.covers(page.last + b"\0") for other in state.pages):
            self._request(state, page.directory, page.last, now_s)

    def cached_count(self, directory: int) -> int:
        """The number of names of the directory whose attributes are cached."""
        state = self._directories.get(directory)
        return 0 if state is None else len(state.names)

    def record_lookup(self, directory: int, name: bytes, inode: pb.Inode | None, now_s: float) -> None:
        """The cluster has just answered a lookup. `inode` is None if the name is absent."""
        self.invalidate_entry(directory, name)
        if inode is None or not has_one_name(inode) or not self._validity:
            return
        self.expire(now_s)
        state = self._directory(directory)
        if self._validity.is_valid(state.listed_s, now_s):
            state.listed_s = -math.inf
            self._readdirplus.record_lookup(state.listed_by)
            self._request(state, directory, b"", now_s)
            return
        if any(page.covers(name) or page.after == name for page in state.pages):
            return  # the name is new or was invalidated, or the page behind it was fetched at its last lookup
        state.misses += 1
        state.budget = min(state.budget + _BUDGET_PER_MISS, _MAX_BUDGET)
        if state.misses >= MISSES_BEFORE_PREFETCH:
            self._request(state, directory, name, now_s)

    def _directory(self, number: int) -> _Directory:
        state = self._directories.pop(number, None)
        if state is None:
            state = _Directory()
            if len(self._directories) >= _MAX_DIRECTORIES:
                self._evict_directories()
        self._directories[number] = state
        return state

    def _evict_directories(self) -> None:
        for number, state in list(self._directories.items())[: _MAX_DIRECTORIES // 4]:
            if not state.pages and state.request is None:
                del self._directories[number]

    def _request(self, state: _Directory, directory: int, after: bytes, now_s: float) -> None:
        if state.request is None and state.budget >= _MIN_NAMES:
            useful = max(_MIN_NAMES, state.rate * self._validity.cache_s * _PAGE_PART)
            state.request = PrefetchRequest(
                directory, after, int(min(state.budget, _MAX_NAMES, useful)), now_s, self.invalidations.generation
            )
            self._start_fetch(state.request)

    def begin_listing(self, directory: int, program: int) -> bool:
        """A program is about to list the directory. Returns whether attributes should come along if it is small."""
        if not self._validity:
            return False
        state = self._directory(directory)
        state.misses = max(state.misses, _MISSES_BY_LISTING)
        return self._readdirplus.wants_attributes(program)

    def listed_without_attributes(self, directory: int, program: int, now_s: float) -> None:
        """The program has listed the directory, which is small, without attributes."""
        if self._validity:
            state = self._directory(directory)
            state.listed_s, state.listed_by = now_s, program

    # ---- pages ----

    def insert_page(
        self, request: PrefetchRequest, found: Sequence[tuple[bytes, pb.Inode]], last: bytes, now_s: float
    ) -> None:
        """The page has come. It reaches to the name `last`; if that is empty, to the end of the directory."""
        state = self._finish_request(request)
        state.budget -= len(found)
        invalidated = self.invalidations.changed_since(request.generation)
        if invalidated is None:
            return
        page = _Page(request.directory, request.after, request.asked_s, last)
        for name, inode in found:
            if has_one_name(inode) and inode.inode not in invalidated and (request.directory, name) not in invalidated:
                self._insert(state, page, name, inode)
        state.pages.append(page)
        self._pages.append(page)
        self.expire(now_s)

    def _insert(self, state: _Directory, page: _Page, name: bytes, inode: pb.Inode) -> None:
        number = inode.inode
        before = state.names.get(name)
        if before is not None:
            del self._locations[before[1].inode]
        self._drop(number)  # it may be cached under another name, if the entry was just moved
        state.names[name] = page, inode
        self._locations[number] = state, name
        page.names.append(name)

    def fetch_failed(self, request: PrefetchRequest) -> None:
        self._finish_request(request)

    def _finish_request(self, request: PrefetchRequest) -> _Directory:
        state = self._directory(request.directory)
        state.request = None
        return state

    # ---- invalidation ----

    def invalidate_inode(self, inode: int) -> None:
        """This mount has changed the inode, or a newer answer about it has come."""
        self._drop(inode)
        self.invalidations.record(inode)

    def invalidate_entry(self, directory: int, name: bytes) -> None:
        """The name may belong to another inode by now."""
        self.invalidate_inode(directory)
        self.invalidations.record((directory, name))
        state = self._directories.get(directory)
        found = None if state is None else state.names.pop(name, None)
        if found is not None:
            del self._locations[found[1].inode]

    def _drop(self, inode: int) -> None:
        place = self._locations.pop(inode, None)
        if place is not None:
            del place[0].names[place[1]]

    def expire(self, now_s: float) -> float | None:
        """Drop pages that are too old, or too many. Returns when the next page expires, if there is one."""
        pages = self._pages
        while pages and (
            not self._validity.is_valid(pages[0].asked_s, now_s)
            or len(self._locations) > MAX_NAMES_TOGETHER
            or len(pages) > _MAX_PAGES
        ):
            page = pages.popleft()
            state = self._directories[page.directory]
            state.pages.remove(page)
            if not page.next_requested:
                _update_rate(state, page, now_s)
            for name in page.names:
                found = state.names.get(name)
                if found is not None and found[0] is page:
                    del state.names[name]
                    del self._locations[found[1].inode]
        return self._validity.expiry_s(pages[0].asked_s) if pages else None


def _update_rate(state: _Directory, page: _Page, now_s: float) -> None:
    if now_s > page.asked_s:
        state.rate = page.hits / (now_s - page.asked_s)


class Prefetcher:
    """Fetches the pages that its `StatAhead` requests, in the background."""

    def __init__(self, validity: Validity, fetch: Fetch, clock: Clock) -> None:
        self.statahead = StatAhead(validity, self._start)
        self.walked_to_end: WalkedToEnd | None = None
        self._fetch = fetch
        self._clock = clock
        self._background = BackgroundTasks()
        self._sweeping = False

    def _start(self, request: PrefetchRequest) -> None:
        self._background.run("prefetching of attributes", self._fetch_page(request))

    async def _fetch_page(self, request: PrefetchRequest) -> None:
        try:
            entries, more = await self._fetch(request.directory, request.after, request.limit)
        except ThreefsError as error:
            _LOG.debug("attributes could not be prefetched", error=str(error))
            self.statahead.fetch_failed(request)
            return
        except Exception:
            _LOG.exception("attributes could not be prefetched")
            self.statahead.fetch_failed(request)
            return
        last = entries[-1].name if more and entries else b""
        self.statahead.insert_page(
            request, [(entry.name, entry.attributes) for entry in entries], last, self._clock.monotonic()
        )
        if not self._sweeping:
            self._sweeping = True
            self._background.run("expiry of prefetched attributes", self._sweep())
        if (
            not last
            and self.walked_to_end is not None
            and self.statahead.cached_count(request.directory) > SMALL_DIRECTORY
        ):
            with contextlib.suppress(ThreefsError):  # a listing of it raises the same error
                await self.walked_to_end(request.directory)

    async def _sweep(self) -> None:
        """Drop expired pages, which take memory even if no lookups follow."""
        while (due_s := self.statahead.expire(self._clock.monotonic())) is not None:
            await self._clock.sleep(max(0.001, due_s - self._clock.monotonic()))
        self._sweeping = False

    async def close(self) -> None:
        await self._background.stop()
