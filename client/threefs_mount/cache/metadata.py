"""What the kernel is told of names without asking the cluster. No I/O happens here."""

from collections.abc import Iterable
from itertools import compress

from threefs_client.context import ClientContext
from threefs_fuse import replies
from threefs_fuse.replies import Entry

from threefs_mount.cache.dirent_columns import ListedAttributes
from threefs_mount.cache.statahead import StatAhead
from threefs_mount.files.table import OpenFileTable
from threefs_mount.kernel import attrs


class MetadataCache:
    """Attributes that were fetched ahead, or came with a listing, for as long as they may be kept since then.

    Not of files that are open here: their attributes change here. Nor of those that were read here, until the cluster
    knows that.
    """

    def __init__(self, link: ClientContext, files: OpenFileTable, ahead: StatAhead, cache_s: float) -> None:
        self._clock = link.clock
        self._access = link.atime_reporter
        self._files = files
        self._ahead = ahead
        self._cache_s = cache_s

    def name(self, directory: int, name: bytes) -> Entry | None:
        """What was fetched ahead."""
        now_s = self._clock.monotonic()
        known = self._ahead.find(directory, name, now_s)
        if (
            known is None
            or self._files.get(known.inode.inode) is not None
            or self._access.is_pending(known.inode.inode)
        ):
            return None
        self._files.told.note(known.inode, known.since_s)
        return attrs.entry(known.inode, self._cache_s - (now_s - known.since_s))

    def names(self, directory: int, names: Iterable[bytes]) -> list[bytes | None]:
        found = [self.name(directory, name) for name in names]
        return [None if one is None else replies.packed(one) for one in found]

    def listed(self, listed: ListedAttributes, first: int, count: int) -> list[bytes | None]:
        """What came with a listing, of so many names from that number on."""
        since_s, behind = listed.attributes.since_s, first + count
        left_s = self._cache_s - (self._clock.monotonic() - since_s)
        touched = self._ahead.touches.since(listed.attributes.mark)
        if left_s <= 0 or touched is None:
            return [None] * count
        numbers, shown = listed.numbers[first:behind], listed.shown[first:behind]
        hidden = self._files.among(numbers) | self._access.pending_among(numbers)
        if touched:
            hidden |= listed.among(touched)
        if hidden:
            shown = [None if number in hidden else one for number, one in zip(numbers, shown, strict=True)]
        valid = replies.valid(left_s)
        told = [None if one is None else one[0] + valid + one[1] for one in shown]
        inodes = listed.attributes.inodes[first:behind]
        self._files.told.note_all(compress(numbers, told), compress(inodes, told), since_s)
        return told
