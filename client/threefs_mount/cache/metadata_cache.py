"""The metadata cache of a mount: all cached names and attributes, under one rule of validity.

An answer of the cluster is valid until `cache_s` after its question was *sent* (`validity`). The absence of a name is
valid while this mount holds a delegation of the directory, and at no other time. A change that this mount makes, or a
newer answer about an inode, invalidates the older entries at once. It also invalidates them in answers that are still
under way: such an answer belongs to an older `generation`, and nothing that was invalidated since then is taken from
it.

The parts of the cache, each a module: `statahead` (attributes that are fetched before the kernel asks), `listings`
(names of directories), `directories` (attributes of directories that this mount changes), `delegations` (directories to
which no other client adds names). What the kernel caches itself is in `OpenFileTable.kernel_attrs`.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from threefs_client.context import ClientContext
from threefs_fuse.replies import Entry

from threefs.wire import meta_pb2 as pb
from threefs_mount.cache import listing_rpc
from threefs_mount.cache.delegation import PendingUnlink
from threefs_mount.cache.delegation_client import Created, DelegationClient, NameReply, Request
from threefs_mount.cache.directory_attrs import DirectoryAttrCache
from threefs_mount.cache.listing_cache import ListingCache
from threefs_mount.cache.prefetched_entries import PrefetchedEntries
from threefs_mount.cache.statahead import Prefetcher
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.kernel import attrs

T = TypeVar("T")


class MetadataCache:
    """If no answer is valid, all parts are off."""

    def __init__(self, context: ClientContext, files: OpenFileTable, validity: Validity) -> None:
        self._clock = context.clock
        self._files = files
        self._validity = validity
        self.prefetcher = Prefetcher(validity, partial(listing_rpc.fetch_entries, context), context.clock)
        self.statahead = self.prefetcher.statahead
        self.listings = ListingCache(partial(listing_rpc.fetch_names, context, self.statahead))
        self.prefetcher.walked_to_end = self.listings.prefetch
        self.entries = PrefetchedEntries(context, files, self.statahead, validity)
        self.directories = DirectoryAttrCache(validity)
        self.delegations = DelegationClient(context, enabled=bool(validity))
        files.on_invalidated = self.statahead.invalidate_inode

    async def close(self) -> None:
        """Stop the background tasks and return the delegations."""
        await self.prefetcher.close()
        await self.listings.close()
        await self.delegations.close()

    @property
    def generation(self) -> int:
        """The current generation. The answer to a question sent now is not inserted for what is invalidated later."""
        return self.statahead.invalidations.generation

    # ---- names ----

    def get(self, directory: int, name: bytes) -> Entry | None:
        """The entry of that name, or attrs.ABSENT. None: the cluster must be asked."""
        if self.delegations.delegations.is_negative(directory, name, self._clock.monotonic()):
            self.statahead.invalidate_entry(directory, name)
            return attrs.ABSENT
        return self.entries.get_entry(directory, name)

    def insert(self, directory: int, name: bytes, inode: pb.Inode | None) -> None:
        """The cluster has just answered a lookup of that name. `inode` is None if the name is absent."""
        now_s = self._clock.monotonic()
        self.statahead.record_lookup(directory, name, inode, now_s)
        if inode is None:
            self.delegations.delegations.record_negative_lookup(directory, now_s)

    # ---- attributes of directories ----

    def get_attributes(self, inode: int) -> Entry | None:
        """The attributes of a directory. None: the cluster must be asked."""
        known = self.directories.get(inode, self._clock.monotonic())
        return None if known is None else attrs.entry(*known)

    async def fetch_attributes(self, inode: int, fetch: Callable[[int], Awaitable[pb.Inode]]) -> pb.Inode:
        """Ask the cluster by `fetch`. The answer about a directory is kept, unless this mount changes the directory
        before it comes."""
        token, asked_s = self.directories.begin_fetch(inode), self._clock.monotonic()
        found: pb.Inode | None = None
        try:
            found = await fetch(inode)
            return found
        finally:
            self.directories.end_fetch(inode, token, found, asked_s)

    def get_removed(self, inode: int) -> Entry | None:
        """The attributes of a directory that this mount has removed, for programs that still work in it."""
        removed = self.directories.get_removed(inode)
        return None if removed is None else attrs.entry(removed, self._validity.cache_s)

    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """The kernel does not know these inodes any more."""
        self.directories.forget_removed(inodes)

    # ---- invalidation ----

    def invalidate_inode(self, inode: int) -> None:
        """This mount has changed the inode, or does not know the outcome of a change."""
        self.statahead.invalidate_inode(inode)
        self.directories.invalidate(inode)

    def invalidate_entry(self, directory: int, name: bytes) -> None:
        """The name may belong to another inode by now."""
        self.statahead.invalidate_entry(directory, name)

    def entry_changed(self, directory: int, time_ns: int) -> None:
        """An entry that is not a directory was added or removed. `time_ns` is the time of the meta service (0: not
        known)."""
        self.directories.entry_changed(directory, time_ns)

    def subdirectory_changed(self, directory: int) -> None:
        """A subdirectory was added or removed, which changes the number of links as well."""
        self.directories.invalidate(directory)

    # ---- changes made here ----

    async def change(self, call: Awaitable[T], *names: tuple[int, bytes], inode: int = 0) -> T:
        """Make a change of these names and of this inode. Whatever its outcome, their entries are invalidated."""
        try:
            return await call
        except BaseException:
            for directory, _ in names:
                self.directories.invalidate(directory)
            raise
        finally:
            for directory, name in names:
                self.invalidate_entry(directory, name)
            if inode:
                self.invalidate_inode(inode)

    async def create(self, directory: int, name: bytes, request: Request, change: Awaitable[NameReply]) -> NameReply:
        """Make a change that adds this name."""
        return await self.delegations.track_create(directory, name, request, change)

    async def create_file(self, request: pb.CreateRequest, creation: Awaitable[Created]) -> Created:
        """Create a file, or open the existing one."""
        directory, birth_ns, is_new = request.place.base, 0, False
        try:
            number, reply = await self.delegations.track_file_create(request, creation)
            birth_ns, is_new = reply.inode.birth_ns, reply.created and not request.unnamed
            return number, reply
        finally:
            self.invalidate_entry(directory, request.place.path)
            if is_new or not birth_ns:
                self.entry_changed(directory, birth_ns)

    def begin_unlink(self, directory: int, name: bytes) -> PendingUnlink | None:
        """Before the request is sent; `unlink_done` or `rename_done` takes what this returns."""
        return self.delegations.delegations.begin_unlink(directory, name)

    def unlink_done(self, unlink: PendingUnlink | None, directory: int, reply: pb.RemoveReply) -> None:
        self.delegations.delegations.unlink_done(unlink)
        if reply.directory.inode:
            self.subdirectory_changed(directory)
            self.directories.insert_removed(reply.directory)
        else:
            self.entry_changed(directory, reply.changed_ns)

    def rename_done(
        self,
        unlink: PendingUnlink | None,
        reply: pb.InodeReply,
        directories: tuple[int, int],
        *,
        keeps_name: bool,
        exchange: bool,
    ) -> None:
        """`keeps_name`: the old name exists after the rename, too. `directories` are the old and the new one."""
        moved = reply.inode
        self._files.kernel_attrs.record_move(moved)
        if not keeps_name and (moved.type == pb.DIRECTORY or moved.nlink == 1):
            self.delegations.delegations.unlink_done(unlink)  # else two names of one file, which a rename leaves alone
        if exchange or moved.type == pb.DIRECTORY:
            self.directories.clear()  # of parents, whose numbers of links change, and of a replaced directory
            if reply.replaced.inode:
                self.directories.insert_removed(reply.replaced)  # a program may work in it
            return
        for directory in directories:
            self.entry_changed(directory, moved.ctime_ns)
