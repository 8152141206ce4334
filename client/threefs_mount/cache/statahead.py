"""Attributes that are fetched before the kernel asks for them. No I/O happens here.

Programs look at one name after the other, and each look costs a call. After a few looks in one directory the names
behind the last one are fetched in one call, and the following looks are answered from what it brought, for as long as
the kernel may keep names and attributes anyway, counted from when the call was sent.

Only names that were there are kept, and no files with more than one name. That a name does not exist is never known
here. What is changed here, or heard of more freshly, is given up at once, also if a page that is under way at that
time shows it as it was before.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.invalidation import InvalidationLog
from threefs_mount.cache.readdirplus_policy import ReaddirplusPolicy
from threefs_mount.kernel.attrs import is_kept

#: So many looks in a directory show that there will be more.
FIRST_LOOKS = 8
#: Who has just listed the directory has made so many of them.
_LOOKS_OF_LISTING = FIRST_LOOKS - 3
#: What may be fetched of a directory is earned: by looks that were answered from here, and a little by all others, so
#: that looks at random names of a huge directory cost hardly more than without.
_FIRST_CREDIT = 512
_EARNED_BY_HIT = 32
_EARNED_BY_MISS = 2
_MOST_CREDIT = 8192
_LEAST_NAMES, _MOST_NAMES = 64, 1024  # in one call
#: Attributes that nobody asks for while they may be kept were fetched for nothing. So a page has as many names as will
#: be looked at in this part of that time, and the next one is fetched when this one will be at its end in that part.
_USED_WITHIN = 1 / 2
_FOLLOWED_WITHIN = 1 / 4
#: Bounds the memory, all directories together.
MOST_KEPT = 32_768
_MOST_PAGES = 1024
_MOST_DIRECTORIES = 256


@dataclass(slots=True, eq=False)
class PrefetchRequest:
    """A page that is to be fetched, or is under way: so many names behind one."""

    directory: int
    after: bytes
    limit: int
    since_s: float
    mark: int  # of what is touched


@dataclass(slots=True, eq=False)
class _Page:
    directory: int
    after: bytes
    since_s: float
    last: bytes  # the last name in it; empty: it reaches to the end of the directory
    kept: list[bytes] = field(default_factory=list)
    used: int = 0
    followed: bool = False

    def covers(self, name: bytes) -> bool:
        return self.after < name and (not self.last or name <= self.last)


@dataclass(slots=True, eq=False)
class _Directory:
    looks: int = 0  # that had to be asked for
    credit: int = _FIRST_CREDIT
    pace: float = math.inf  # looks per second, one name after the other, as far as is known
    wish: PrefetchRequest | None = None
    named_s: float = -math.inf  # when all its names, which are few, were told without attributes ...
    named_to: int = 0  # ... and which program
    names: dict[bytes, tuple[_Page, pb.Inode]] = field(default_factory=dict)
    pages: list[_Page] = field(default_factory=list)


class CachedAttr(NamedTuple):
    inode: pb.Inode
    since_s: float  # it was so then, or later


class StatAhead:
    """`cache_s` is how long names and attributes may be kept; 0 switches it off. `start` is told what to fetch."""

    def __init__(self, cache_s: float, start: Callable[[PrefetchRequest], None]) -> None:
        self._cache_s = cache_s
        self._start = start
        self._directories: dict[int, _Directory] = {}  # the one that was asked about last at the end
        self._places: dict[int, tuple[_Directory, bytes]] = {}  # of all that is kept, by inode
        self._pages: deque[_Page] = deque()  # oldest first
        self.touches = InvalidationLog()
        self._habits = ReaddirplusPolicy()

    # ---- looks ----

    def find(self, directory: int, name: bytes, now_s: float) -> CachedAttr | None:
        """What may be told of a name; None: ask."""
        at = self._directories.get(directory)
        if at is None:
            return None
        found = at.names.get(name)
        if found is None or now_s >= found[0].since_s + self._cache_s:
            return None
        page, inode = found
        page.used += 1
        if at.credit < _MOST_CREDIT:
            at.credit += _EARNED_BY_HIT
        if not page.followed and page.used * 8 >= len(page.kept) and self._is_late(page, now_s):
            self._follow(at, page, now_s)
        return CachedAttr(inode, page.since_s)

    def _is_late(self, page: _Page, now_s: float) -> bool:
        """Whether it will soon be at its end, if looks go on as they did."""
        left = len(page.kept) - page.used
        return left * (now_s - page.since_s) <= page.used * _FOLLOWED_WITHIN * self._cache_s

    def _follow(self, at: _Directory, page: _Page, now_s: float) -> None:
        page.followed = True
        _note_pace(at, page, now_s)
        if page.last and not any(other.covers(page.last + b"\0") for other in at.pages):
            self._wish(at, page.directory, page.last, now_s)

    def count(self, directory: int) -> int:
        """Of how many names there attributes are known."""
        at = self._directories.get(directory)
        return 0 if at is None else len(at.names)

    def asked(self, directory: int, name: bytes, inode: pb.Inode | None, now_s: float) -> None:
        """What the cluster has said of a name just now; None: there is no such name."""
        self.touch_name(directory, name)
        if inode is None or not is_kept(inode) or not self._cache_s:
            return
        self.expire(now_s)
        at = self._directory(directory)
        if now_s < at.named_s + self._cache_s:
            at.named_s = -math.inf
            self._habits.looked(at.named_to)
            self._wish(at, directory, b"", now_s)
            return
        if any(page.covers(name) or page.after == name for page in at.pages):
            return  # it is new, or was touched, or what is behind it was fetched when it was asked for the last time
        at.looks += 1
        at.credit = min(at.credit + _EARNED_BY_MISS, _MOST_CREDIT)
        if at.looks >= FIRST_LOOKS:
            self._wish(at, directory, name, now_s)

    def _directory(self, number: int) -> _Directory:
        at = self._directories.pop(number, None)
        if at is None:
            at = _Directory()
            if len(self._directories) >= _MOST_DIRECTORIES:
                self._forget_directories()
        self._directories[number] = at
        return at

    def _forget_directories(self) -> None:
        for number, at in list(self._directories.items())[: _MOST_DIRECTORIES // 4]:
            if not at.pages and at.wish is None:
                del self._directories[number]

    def _wish(self, at: _Directory, directory: int, after: bytes, now_s: float) -> None:
        if at.wish is None and at.credit >= _LEAST_NAMES:
            useful = max(_LEAST_NAMES, at.pace * self._cache_s * _USED_WITHIN)
            at.wish = PrefetchRequest(
                directory, after, int(min(at.credit, _MOST_NAMES, useful)), now_s, self.touches.mark
            )
            self._start(at.wish)

    def listed(self, directory: int, program: int) -> bool:
        """A program is about to list the directory. Whether attributes are to come along, if it has few names."""
        if not self._cache_s:
            return False
        at = self._directory(directory)
        at.looks = max(at.looks, _LOOKS_OF_LISTING)
        return self._habits.wants_attributes(program)

    def named(self, directory: int, program: int, now_s: float) -> None:
        """All its names, which are few, have been told without attributes."""
        if self._cache_s:
            at = self._directory(directory)
            at.named_s, at.named_to = now_s, program

    # ---- what was wished for ----

    def arrived(
        self, wish: PrefetchRequest, found: Sequence[tuple[bytes, pb.Inode]], last: bytes, now_s: float
    ) -> None:
        """The page is there. It reaches to the name `last`, or if that is empty to the end of the directory."""
        at = self._ended(wish)
        at.credit -= len(found)
        touched = self.touches.since(wish.mark)
        if touched is None:
            return
        page = _Page(wish.directory, wish.after, wish.since_s, last)
        for name, inode in found:
            if is_kept(inode) and inode.inode not in touched and (wish.directory, name) not in touched:
                self._keep(at, page, name, inode)
        at.pages.append(page)
        self._pages.append(page)
        self.expire(now_s)

    def _keep(self, at: _Directory, page: _Page, name: bytes, inode: pb.Inode) -> None:
        number = inode.inode
        before = at.names.get(name)
        if before is not None:
            del self._places[before[1].inode]
        self._drop(number)  # under another name, if the entry has just been moved
        at.names[name] = page, inode
        self._places[number] = at, name
        page.kept.append(name)

    def failed(self, wish: PrefetchRequest) -> None:
        self._ended(wish)

    def _ended(self, wish: PrefetchRequest) -> _Directory:
        at = self._directory(wish.directory)
        at.wish = None
        return at

    # ---- what ends ----

    def touch(self, inode: int) -> None:
        """It was changed here, or heard of more freshly."""
        self._drop(inode)
        self.touches.note(inode)

    def touch_name(self, directory: int, name: bytes) -> None:
        """It may stand for something else by now."""
        self.touch(directory)
        self.touches.note((directory, name))
        at = self._directories.get(directory)
        found = None if at is None else at.names.pop(name, None)
        if found is not None:
            del self._places[found[1].inode]

    def _drop(self, inode: int) -> None:
        place = self._places.pop(inode, None)
        if place is not None:
            del place[0].names[place[1]]

    def expire(self, now_s: float) -> float | None:
        """Give up what is too old, or too much. When the next page will be, if there is any."""
        pages = self._pages
        oldest_s = now_s - self._cache_s
        while pages and (pages[0].since_s <= oldest_s or len(self._places) > MOST_KEPT or len(pages) > _MOST_PAGES):
            page = pages.popleft()
            at = self._directories[page.directory]
            at.pages.remove(page)
            if not page.followed:
                _note_pace(at, page, now_s)
            for name in page.kept:
                found = at.names.get(name)
                if found is not None and found[0] is page:
                    del at.names[name]
                    del self._places[found[1].inode]
        return pages[0].since_s + self._cache_s if pages else None


def _note_pace(at: _Directory, page: _Page, now_s: float) -> None:
    if now_s > page.since_s:
        at.pace = page.used / (now_s - page.since_s)
