from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from threefs_fuse import replies
from threefs_mount.cache.dirent_columns import Attributes, ListedAttributes
from threefs_mount.cache.kernel_attrs import KernelAttrCache
from threefs_mount.cache.prefetched_entries import PrefetchedEntries
from threefs_mount.cache.statahead import MISSES_BEFORE_PREFETCH, PrefetchRequest, StatAhead
from threefs_mount.cache.validity import Validity
from threefs_mount.kernel import attrs

from tests.harness.clocks import SteppedClock
from threefs.wire import meta_pb2 as pb

CACHE_S = 1.0


def inode_of(packed: bytes | None) -> int:
    return 0 if packed is None else int.from_bytes(packed[:8], "little")


class Some:
    """Inodes of which something is known here: those that are open, or that were read."""

    def __init__(self) -> None:
        self.inodes: set[int] = set()
        self.kernel_attrs = KernelAttrCache(Validity(CACHE_S))

    def among(self, inodes: Iterable[int]) -> set[int]:
        return self.inodes.intersection(inodes)

    open_among = among

    def get(self, inode: int) -> object | None:
        return inode if inode in self.inodes else None

    def is_pending(self, inode: int) -> bool:
        return inode in self.inodes

    def pending_among(self, inodes: Iterable[int]) -> set[int]:
        return self.among(inodes)


class Scene:
    """Directory 7 with files 100, 101, ... of the names "0", "1", ..."""

    def __init__(self, *inodes: pb.Inode) -> None:
        self.requests: list[PrefetchRequest] = []
        self.statahead = StatAhead(Validity(CACHE_S), self.requests.append)
        self.open, self.read = Some(), Some()
        self.clock = SteppedClock()
        link = cast(Any, SimpleNamespace(clock=self.clock, atime_reporter=self.read))
        self.entries = PrefetchedEntries(link, cast(Any, self.open), self.statahead, Validity(CACHE_S))
        self.inodes = inodes or tuple(pb.Inode(inode=100 + number, type=pb.FILE, nlink=1) for number in range(5))

    def listed(self) -> ListedAttributes:
        names = b"".join(b"%d\0" % number for number in range(len(self.inodes)))
        bodies = [inode.SerializeToString() for inode in self.inodes]
        numbers = [inode.inode for inode in self.inodes]
        attributes = Attributes(bodies, self.clock.monotonic(), self.statahead.invalidations.generation)
        return ListedAttributes(7, names, numbers, attributes, attrs.prepared_entries(bodies))

    def told(self, listed: ListedAttributes, first: int = 0) -> list[int]:
        found = self.entries.packed_listing(listed, first, len(self.inodes) - first)
        return [inode_of(one) for one in found]


def test_attributes_of_a_listing_are_used_as_long_as_they_are_valid() -> None:
    scene = Scene()
    listed = scene.listed()
    assert scene.told(listed) == [100, 101, 102, 103, 104] and scene.told(listed, 3) == [103, 104]
    scene.clock.advance(0.75)
    [first, *_] = scene.entries.packed_listing(listed, 0, 1)
    assert first == replies.packed(attrs.entry(scene.inodes[0], 0.25))
    scene.clock.advance(0.25)
    assert scene.told(listed) == [0] * 5


def test_entries_invalidated_since_then_are_fetched() -> None:
    scene = Scene()
    scene.statahead.invalidate_inode(100)
    listed = scene.listed()
    scene.statahead.invalidate_inode(101)
    scene.statahead.invalidate_entry(7, b"2")
    scene.statahead.invalidate_entry(8, b"3")
    assert scene.told(listed) == [100, 0, 0, 103, 104]
    for number in range(10_000):
        scene.statahead.invalidate_inode(number + 1000)
    assert scene.told(listed) == [0] * 5


def test_files_that_are_open_or_were_read_here_are_asked_for() -> None:
    scene = Scene()
    scene.open.inodes.add(101)
    scene.read.inodes.add(103)
    assert scene.told(scene.listed()) == [100, 0, 102, 0, 104]
    scene.statahead.record_lookup(7, b"", None, scene.clock.monotonic())
    for number in range(MISSES_BEFORE_PREFETCH):
        scene.statahead.record_lookup(7, b"%d" % number, scene.inodes[0], scene.clock.monotonic())
    [wish] = scene.requests
    found = [(b"x%d" % number, inode) for number, inode in enumerate(scene.inodes)]
    scene.statahead.insert_page(wish, found, b"", scene.clock.monotonic())
    names = scene.entries.packed_entries(7, [name for name, _ in found])
    assert [inode_of(one) for one in names] == [100, 0, 102, 0, 104]


def test_files_with_more_names_are_asked_for() -> None:
    scene = Scene(pb.Inode(inode=5, type=pb.FILE, nlink=2), pb.Inode(inode=6, type=pb.DIRECTORY, nlink=4))
    assert scene.told(scene.listed()) == [0, 6]


def test_only_entries_that_the_kernel_gets_are_recorded() -> None:
    """Or what was set a moment ago would be lacking."""
    scene = Scene()
    listed = scene.listed()
    scene.statahead.invalidate_inode(100)
    scene.told(listed)
    now_s = scene.clock.monotonic()
    assert not scene.open.kernel_attrs.lacks_xattr(100, b"user.a", now_s)
    assert scene.open.kernel_attrs.lacks_xattr(101, b"user.a", now_s)
