"""Entries that the kernel gets without a question to the cluster. No I/O happens here."""

from collections.abc import Iterable
from itertools import compress

from threefs_client.context import ClientContext
from threefs_fuse import replies
from threefs_fuse.replies import Entry

from threefs_mount.cache.dirent_columns import ListedAttributes
from threefs_mount.cache.statahead import StatAhead
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.kernel import attrs


class PrefetchedEntries:
    """Attributes that were fetched ahead or came with a listing, while they are valid.

    Files that are open on this mount are left out, because writes change their attributes here. So are files with a
    read that is not reported to the cluster yet, because it changes their access time.
    """

    def __init__(self, context: ClientContext, files: OpenFileTable, statahead: StatAhead, validity: Validity) -> None:
        self._clock = context.clock
        self._atime_reporter = context.atime_reporter
        self._files = files
        self._statahead = statahead
        self._validity = validity

    def get_entry(self, directory: int, name: bytes) -> Entry | None:
        """The entry that was fetched ahead; None: the cluster must be asked."""
        now_s = self._clock.monotonic()
        known = self._statahead.get(directory, name, now_s)
        if (
            known is None
            or self._files.get(known.inode.inode) is not None
            or self._atime_reporter.is_pending(known.inode.inode)
        ):
            return None
        self._files.kernel_attrs.record(known.inode, known.asked_s)
        return attrs.entry(known.inode, self._validity.left_s(known.asked_s, now_s))

    def packed_entries(self, directory: int, names: Iterable[bytes]) -> list[bytes | None]:
        found = [self.get_entry(directory, name) for name in names]
        return [None if one is None else replies.packed(one) for one in found]

    def packed_listing(self, listed: ListedAttributes, first: int, count: int) -> list[bytes | None]:
        """The entries of `count` names from number `first` on, of attributes that came with a listing."""
        asked_s, end = listed.attributes.asked_s, first + count
        left_s = self._validity.left_s(asked_s, self._clock.monotonic())
        invalidated = self._statahead.invalidations.changed_since(listed.attributes.generation)
        if not left_s or invalidated is None:
            return [None] * count
        numbers, shown = listed.numbers[first:end], listed.packed[first:end]
        hidden = self._files.open_among(numbers) | self._atime_reporter.pending_among(numbers)
        if invalidated:
            hidden |= listed.invalidated(invalidated)
        if hidden:
            shown = [None if number in hidden else one for number, one in zip(numbers, shown, strict=True)]
        valid = replies.valid(left_s)
        packed = [None if one is None else one[0] + valid + one[1] for one in shown]
        inodes = listed.attributes.inodes[first:end]
        self._files.kernel_attrs.record_all(compress(numbers, packed), compress(inodes, packed), asked_s)
        return packed
