"""What the kernel is told of names without asking the cluster. No I/O happens here."""

from collections.abc import Iterable
from itertools import compress

from threefs_client.link import Link
from threefs_fuse.replies import Entry

from threefs.wire import meta_pb2 as pb
from threefs_mount import entries
from threefs_mount.ahead import Ahead, is_kept
from threefs_mount.listing import Listed
from threefs_mount.open_files import OpenFiles

_inode = pb.Inode.FromString


class Unasked:
    """Attributes that were fetched ahead, or came with a listing, for as long as they may be kept since then.

    Not of files that are open here: their attributes change here. Nor of those that were read here, until the cluster
    knows that.
    """

    def __init__(self, link: Link, files: OpenFiles, ahead: Ahead, cache_s: float) -> None:
        self._clock = link.clock
        self._access = link.access
        self._files = files
        self._ahead = ahead
        self._cache_s = cache_s

    def name(self, directory: int, name: bytes) -> Entry | None:
        """What was fetched ahead."""
        now_s = self._clock.monotonic()
        known = self._ahead.find(directory, name, now_s)
        if known is None or self._files.get(known.inode.inode) is not None or self._access.waits(known.inode.inode):
            return None
        self._files.told.note(known.inode, known.since_s)
        return entries.entry(known.inode, self._cache_s - (now_s - known.since_s))

    def names(self, directory: int, names: Iterable[bytes]) -> list[Entry | None]:
        return [self.name(directory, name) for name in names]

    def listed(self, listed: Listed, first: int, count: int) -> list[Entry | None]:
        """What came with a listing, of so many names from that number on."""
        left_s = self._cache_s - (self._clock.monotonic() - listed.since_s)
        touched = self._ahead.touches.since(listed.mark)
        if left_s <= 0 or touched is None:
            return [None] * count
        numbers, inodes = listed.numbers[first : first + count], listed.inodes[first : first + count]
        hidden = self._files.among(numbers) | self._access.among(numbers)
        if touched:
            hidden |= listed.among(touched)
        told: list[Entry | None] = []
        for number, inode in zip(numbers, map(_inode, inodes), strict=True):
            told.append(None if number in hidden or not is_kept(inode) else entries.entry(inode, left_s))
        self._files.told.note_all(compress(numbers, told), compress(inodes, told), listed.since_s)
        return told
