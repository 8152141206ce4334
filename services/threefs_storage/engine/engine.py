"""The chunks of one target.

A change has two steps. `stage` writes the content of the next version and its record, and returns when both are
durable. `commit` makes that version the committed one. Content is copied on write, so that no crash can damage the
committed version: it goes to a new block, or, if it is small, to the record store, as an overlay over the committed
block (overlay.py). Only an append writes into the committed block, after the bytes of it that count. `fold` makes a
block of a version with an overlay.

The caller changes a chunk in one task at a time. A record is valid until the next await, or as long as the block of its
version is pinned.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path

from threefs.checksums import Buffer
from threefs.env.disk import Disk, run_to_completion
from threefs.env.random import RANDOM, Random
from threefs.errors import Corrupt, DiskFailed, InvalidArgument, NoSpace, ThreefsError, Unavailable, VersionGap
from threefs.ids import ChunkId
from threefs.kv.rocksdb_store import tells_of_disk
from threefs.kv.table import Table
from threefs.layout import FENCE_CHUNK
from threefs_storage.engine.ballast import BALLAST_FILE, Ballast
from threefs_storage.engine.block_files import BlockFiles, Space
from threefs_storage.engine.chunk_reader import ChunkReader
from threefs_storage.engine.chunk_record import Block, Record, Version, decode
from threefs_storage.engine.chunk_writer import ChunkWriter, Written, lost_version
from threefs_storage.engine.content_plan import Check, Kind, Update, check_order, plan, replacement, with_pending
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.failures import outranks
from threefs_storage.engine.fold import ChunkFolder
from threefs_storage.engine.group_commit import GroupCommit
from threefs_storage.engine.record_store import LOGICAL_TIME, RecordStore, RecordTable, base_version, live_version
from threefs_storage.engine.working_memory import WorkingMemory

#: A block that cannot be read is damage of its chunk. This many of them mean that the disk has failed.
MAX_UNREADABLE = 16


class ChunkEngine:
    """Use `await ChunkEngine.open(directory, disk)`."""

    def __init__(
        self,
        directory: Path,
        store: RecordStore,
        files: BlockFiles,
        memory: WorkingMemory,
        store_id: int,
        ballast: Ballast,
    ) -> None:
        #: Why the engine takes no changes: NoSpace until `recover` finds room, any other error for good.
        self.failure: ThreefsError | None = None
        self.on_failure: Callable[[ThreefsError], None] = lambda error: None  # called with each that is not NoSpace
        self.store_id = store_id  # drawn when the store was made: another one means a new, empty store
        self.newest_stamp = 0  # in minutes of the chain's logical time: no record has a later one
        self.damaged: list[ChunkId] = []  # chunks whose records were damaged when the engine was opened
        self._directory, self._buffers, self._store, self._files = directory, memory.buffers, store, files
        self.committer = GroupCommit(store)
        self._ballast, self.disk_takes = ballast, ballast.takes
        self._uncertain_blocks: list[tuple[ChunkId, Block]] = []  # of records whose write failed with the table
        self._unreadable_blocks: set[Block] = set()
        reader = ChunkReader(files, memory, store.blob, self._note_unreadable)
        store.on_failure = files.on_failure = self.fail
        #: Others may have free blocks. They stay as they are where even with these less than so many bytes are free.
        self.on_no_room: Callable[[int], Awaitable[None]] = lambda least_bytes: asyncio.sleep(0)
        self._writer = ChunkWriter(files, store, reader, memory, self.committer.work, lambda: self.on_no_room(0))
        self._folder = ChunkFolder(self._writer, files, store)
        self._staging, self._chunks, self._closing, self._closed = set[ChunkId](), 0, False, False
        self._upkeep = asyncio.Lock()  # a step of it waits for the disk, and must not go on in a store that is closed
        # `read` and `read_cold` fill a buffer with a range of a version and return its CRC32C; `read` returns None if
        # it would have to wait. `stored_record` is what the table has. Every read calls them: they have no wrappers.
        self.read, self.read_cold, self.read_raw = reader.read, reader.read_cold, reader.read_raw
        self.read_old, self.joined, self.reading = self._writer.read_old, memory.joined_share(), reader.work
        self.record, self.stored_record, self.rewrite_damaged = store.get, store.stored_record, store.rewrite_damaged
        #: Chunks with a pending version, and chunks with a lost one.
        self.pending_chunks: Set[ChunkId] = store.pending
        #: By inode: writes of clients with this fence or a lower one are refused.
        self.fences: Mapping[int, int] = store.fences
        self.lost_chunks: Set[ChunkId] = store.lost
        self.inventory, self.unreadable, self.notice_failure = store.inventory, store.unreadable, store.notice_failure
        self.foldable: Mapping[ChunkId, None] = store.foldable  # in the order of their last changes
        self.corrected, self.flush = store.corrected, store.flush  # the flush makes all commits and drops durable
        self.note, self.put_note, self.keep_note = store.note, store.put_note, store.keep_note

    @classmethod
    async def open(
        cls,
        directory: Path,
        disk: Disk,
        settings: EngineSettings | None = None,
        *,
        memory: WorkingMemory | None = None,
        random: Random = RANDOM,
        open_table: Callable[[Path], Awaitable[RecordTable]] = Table.open,
    ) -> "ChunkEngine":
        """Open the engine; the directory is created if it is missing. A block that no record names is free. Engines may
        share a `memory`."""
        settings = settings or EngineSettings()
        files = BlockFiles(directory / "blocks", directory.parent, disk, settings.full_ratio)
        ballast = Ballast(directory / BALLAST_FILE, disk, settings.ballast_bytes)
        async with AsyncExitStack() as opened:  # closed again if the rest fails: a later attempt needs the table
            opened.push_async_callback(files.close)
            opened.push_async_callback(ballast.close)
            await files.open()
            table = await ballast.open_with_room(lambda: open_table(directory / "records"))
            opened.push_async_callback(table.close)
            store = RecordStore(table, settings.cached_records, settings.overlay)
            store_id = await store.load_identity(lambda: int.from_bytes(random.token(8), "big") or 1)
            engine = cls(directory, store, files, memory or WorkingMemory(), store_id, ballast)
            await engine._load_records()
            engine.newest_stamp = max(engine.newest_stamp, int.from_bytes(store.note(LOGICAL_TIME) or b"", "big"))
            await files.prepare()
            await ballast.allocate()
            opened.pop_all()
        return engine

    def adopt(self, settings: EngineSettings) -> None:
        """Go on with these settings; the ballast stays as it is."""
        self._files.full_ratio, self._store.limits = settings.full_ratio, settings.overlay
        self._store.set_cached_records(settings.cached_records)

    async def _load_records(self) -> None:
        """Read all records. Raises Corrupt if the table itself is damaged."""
        async for chunk, data in self._store.all_rows():
            try:
                record = decode(chunk, data)
            except Corrupt:
                self.damaged.append(chunk)  # its blocks count as free: only a whole chunk can repair it
                self._store.index_unreadable(chunk)
                continue
            for block in record.blocks:
                self._files.claim(block)
            self._store.update_indexes(chunk, record)
            self._store.count_blobs(record)
            self.newest_stamp = max(self.newest_stamp, record.newest_stamp)
            self._chunks += live_version(record) is not None

    async def close(self) -> None:
        """Make everything durable. No change may be under way, none begins, and no file is touched after it: their
        descriptors may be those of other files. A second call does nothing."""
        assert not self._staging, "a store closes after its last change"
        self._closing = True
        async with self._upkeep, AsyncExitStack() as rest:  # each is closed, also if another one fails
            if self._closed:
                return
            self._closed = True
            rest.push_async_callback(self._ballast.close)
            rest.push_async_callback(self._files.close)
            await self._store.close()

    @property
    def read_only(self) -> ThreefsError | None:
        """Why writes of clients are refused while the disk is full; None if they are taken."""
        if self.failure is not None:
            return self.failure if isinstance(self.failure, NoSpace) else None
        if not self._ballast.allocated:
            return NoSpace("the disk has room only for removals")
        return NoSpace("the disk has no room for clients' writes") if self._files.full else None

    @property
    def room_bytes(self) -> int:  # that clients' writes may take
        return 0 if self.failure is not None or not self._ballast.allocated else max(0, self._files.room_bytes())

    async def recover(self) -> None:
        """Take changes again after a full disk if there is room. Call this now and then while it is `read_only`. Raises
        NoSpace if there is no room yet, Unavailable also without descriptors, and DiskFailed or Corrupt for good."""
        if isinstance(self.failure, NoSpace) or not self._ballast.allocated:
            # No upkeep waits for it: what makes room waits for the upkeep of each target.
            await self.on_no_room(0 if self.failure is not None else self._ballast.needed_bytes)
        async with self._upkeeping():
            if self._closed:
                return
            if isinstance(self.failure, NoSpace):
                await self._files.release_free_blocks(self._store.durable)
                await self._ballast.release()
                try:
                    await self._store.reopen()
                except (Unavailable, Corrupt) as error:
                    if tells_of_disk(error) or isinstance(self._store.failure, Unavailable):  # else it is tried again
                        self.fail(error)
                    raise
                for chunk, block in self._uncertain_blocks:
                    record = self.stored_record(chunk)
                    if record is not None and block not in record.blocks:  # else it may be one of a damaged record
                        self._free(block, 0)
                self._uncertain_blocks.clear()
                if isinstance(self.failure, NoSpace):  # else the disk has failed meanwhile, for good
                    self.failure = None
            if self.failure is None and not await self._ballast.allocate():
                await self._release(self._files.release_free_blocks)
                await self._ballast.allocate()

    async def release_unneeded(self) -> None:
        """Give room of free blocks that were not needed since the last call back to the disk. Raises as `recover`."""
        async with self._upkeeping():
            await self._release(self._files.release_unneeded_blocks)

    async def release_free(self) -> None:
        """The same with all free blocks."""
        async with self._upkeeping():
            await self._release(self._files.release_free_blocks)

    @asynccontextmanager
    async def _upkeeping(self) -> AsyncIterator[None]:
        """One step of upkeep at a time. A disk that fails in it takes no more changes."""
        async with self._upkeep:
            try:
                yield
            except DiskFailed as error:
                self.fail(error)
                raise

    async def _release(self, release: Callable[[int], Awaitable[None]]) -> None:
        if self._closed or self.failure is not None:
            return
        if self._files.has_freed_blocks():
            await self._store.flush()
        await release(self._store.durable)

    async def limit_log(self, *, is_nearly_full: bool) -> None:  # raises as `recover`
        async with self._upkeeping():
            if not self._closed and self.failure is None:
                await self._ballast.limit_log(self._store, is_nearly_full=is_nearly_full)

    async def stage(self, chunk: ChunkId, update: Update, *, payload: Buffer = b"") -> Version:
        """Make the version that `update` describes durable as the pending one.

        It must be the one after the committed version, and no version may be pending. A replace may have any version
        that is not older than one of the same chain version. A cancelled call ends only when its work has ended; then
        the version may be pending.

        Raises VersionGap, InvalidArgument, ChecksumMismatch, NoSpace, CorruptChunk (the bytes to copy are damaged),
        DiskFailed, Unavailable.
        """
        return await run_to_completion(self._stage(chunk, update, memoryview(payload).cast("B")))

    def commit(self, chunk: ChunkId, version: int, chain_version: int) -> Version:
        """Make the pending version the committed one. A second commit changes nothing. Raises VersionGap.

        Not durable at once: after a crash the version may be pending again.
        """
        self._check_writable()
        assert chunk not in self._staging, "a chunk is changed by one call at a time"
        record = self.record(chunk) or Record()
        old, pending = record.committed, record.pending
        if pending is None or pending.version != version:
            if old is not None and old.version == version:
                return old
            raise VersionGap(f"version {version} of chunk {chunk} is not pending here")
        after = record.after_commit(chain_version)
        assert after.committed is not None, "a commit leaves a committed version"
        assert after.committed.content == pending.content, "a commit changes neither version nor content"
        number = self._write(chunk, after)
        self._chunks += (live_version(after) is not None) - (live_version(record) is not None)
        if old is not None and old.block is not None and old.block != pending.block:
            self._free(old.block, number)
        return after.committed

    async def restore(self, chunk: ChunkId, version: Version, content: Buffer) -> None:
        """Write the good bytes of a committed or pending version again, because its bytes here are damaged.

        Raises ChecksumMismatch, NoSpace, DiskFailed, Unavailable.
        """
        await run_to_completion(self._restore(chunk, version, memoryview(content).cast("B")))

    async def fold(self, chunk: ChunkId) -> bool:
        """Write the committed version of a foldable chunk to a block of its own. Its content stays the same. False if
        a version is pending, or there is nothing to fold.

        Raises NoSpace, CorruptChunk, Corrupt, DiskFailed, Unavailable.
        """
        return await run_to_completion(self._fold(chunk))

    def mark_lost(self, chunk: ChunkId, version: Version) -> Version:
        """Mark a committed or pending version whose content no member has. Not durable at once."""
        self._check_writable()
        record = self.record(chunk)
        assert record is not None and version in (record.committed, record.pending), (
            "a lost version is that of a record"
        )
        lost = dataclasses.replace(version, lost=True)
        self._write(chunk, record.with_copy(version, lost))
        return lost

    def forget(self, chunk: ChunkId) -> None:
        """Remove the record of a chunk. Not durable at once."""
        self._check_writable()
        assert chunk not in self._staging, "a chunk is changed by one call at a time"
        try:
            record = self.record(chunk)
        except Corrupt:
            record = Record()  # its blocks are not known: they are free after the next start
        if record is None:
            return
        number = self._write(chunk, None)
        self._chunks -= live_version(record) is not None
        for block in record.blocks:
            self._free(block, number)

    def drop_pending(self, chunk: ChunkId) -> None:
        """Forget the pending version, if there is one. Not durable at once."""
        self._check_writable()
        assert chunk not in self._staging, "a chunk is changed by one call at a time"
        record = self.record(chunk)
        if record is None or record.pending is None:
            return
        kept = Record(record.committed, None, record.entries, None, record.forgotten)
        number = self._write(chunk, kept if kept != Record() else None)
        block = record.pending.block
        if block is None:
            return
        if record.committed is None or record.committed.block != block:
            self._free(block, number)
        elif record.committed.base_length < record.pending.base_length:
            self._writer.torn.add(block)

    def fail(self, error: ThreefsError, *, even_closed: bool = False) -> None:
        """Take no more changes. The first error counts, unless a later one outranks it. What is met in the files of a
        closed store says nothing of the disk; other errors of it count `even_closed`."""
        if self._closed and not even_closed:
            return
        if self.failure is None or outranks(error, self.failure):
            self.failure = error
            if not isinstance(error, NoSpace):
                self.on_failure(error)

    async def verify(self, version: Version) -> None:
        """Read all bytes of a version from the disk and compare the checksum. Raises CorruptChunk, DiskFailed."""
        buffer = self._buffers.take(version.length)
        try:
            await self.read_cold(version, 0, buffer[: version.length], past_cache=True)
        finally:
            self._buffers.give(buffer)

    def pin(self, version: Version) -> None:
        """Keep the block of this version until `unpin`, whatever happens to the chunk. Its blobs are not kept: a read
        takes them in its first step."""
        if version.block is not None:
            self._files.pin(version.block)

    def unpin(self, version: Version) -> None:
        if version.block is not None:
            self._files.unpin(version.block)

    def last_chunk(self, inode: int) -> tuple[ChunkId, Record] | None:
        """The highest existing chunk of an inode."""
        return self._store.last(ChunkId(inode, 0).key(), ChunkId(inode, FENCE_CHUNK).key())

    def chunks(self, inode: int, first: int, limit: int) -> list[tuple[ChunkId, Record]]:
        """Existing chunks of an inode from number `first` on, ascending."""
        rows = self._store.scan(ChunkId(inode, first).key(), ChunkId(inode, FENCE_CHUNK).key())
        return list(islice(((chunk, record) for chunk, record in rows if live_version(record)), limit))

    def pending(self) -> list[ChunkId]:
        """Chunks that have a pending version, in key order."""
        return sorted(self._store.pending)

    @property
    def generation(self) -> int:  # of the newest change of a chunk that survives a crash; it only rises
        return self._store.generation

    def space(self) -> Space:  # of a disk that does not say any more what it has, nothing: it has failed
        try:
            return self._files.space(self._store.blob_bytes, self._chunks)
        except DiskFailed as error:
            self.fail(error, even_closed=True)
            return Space(0, 0, 0, self._chunks, 0)

    @contextmanager
    def _changing(self, chunk: ChunkId) -> Iterator[None]:
        """One task changes the chunk. A disk that fails in it takes no more changes."""
        self._check_writable()
        assert chunk not in self._staging, "a chunk is changed by one task at a time"
        self._staging.add(chunk)
        try:
            yield
        except DiskFailed as error:
            self.fail(error)
            raise
        finally:
            self._staging.discard(chunk)

    async def _stage(self, chunk: ChunkId, update: Update, payload: memoryview) -> Version:
        with self._changing(chunk):
            if not self._ballast.allocated and not update.admitted and update.kind in (Kind.WRITE, Kind.EXTEND):
                raise NoSpace("the disk has room only for removals")
            record = self._base_record(chunk, update)
            if update.lost:
                return await self._stage_lost(chunk, update, record)
            old = base_version(chunk, record)
            if old is not None and self._folder.should_precede(old, update):
                old = await self._fold_committed(chunk, record, old, update.admitted)
                record = self._base_record(chunk, update)
            content = plan(old.length if old is not None else 0, update)
            if len(payload) != content.payload:
                raise InvalidArgument(f"{len(payload)} bytes of payload, the change announces {content.payload}")
            written = await self._writer.write(record.free_blob(chunk), old, update, content, payload)
            assert (written.version.version, written.version.length) == (update.version, content.length), (
                "a staged version is the one that the change describes"
            )
            after = with_pending(record, written.version, update)
            await self._make_durable(chunk, record, after, written, update.check)
            return written.version

    async def _stage_lost(self, chunk: ChunkId, update: Update, record: Record) -> Version:
        """A version without content, unless that of the same one is here, committed or pending."""
        content = (update.version, update.length, update.checksum, update.removed)
        same = [v for v in (record.committed, record.pending) if v is not None and v.content == content]
        version = min(same, key=lambda v: v.lost, default=lost_version(update))
        version = dataclasses.replace(
            version, chain_version=update.chain_version, identity=update.identity, stamp=update.stamp
        )
        after = with_pending(record, version, update)
        await self._make_durable(chunk, record, after, Written(version), update.check)
        return version

    async def _restore(self, chunk: ChunkId, version: Version, content: memoryview) -> None:
        with self._changing(chunk):
            record = self.record(chunk)
            assert record is not None and version in (record.committed, record.pending), "a record keeps its versions"
            update = replacement(version)
            written = await self._writer.write(record.free_blob(chunk), None, update, plan(0, update), content)
            assert written.version.content[:3] == version.content[:3], "a repair changes neither version nor content"
            after = record.with_copy(version, dataclasses.replace(written.version, removed=version.removed))
            await self._make_durable(chunk, record, after, written)

    async def _fold(self, chunk: ChunkId) -> bool:
        with self._changing(chunk):
            record = self.record(chunk)
            version = record.committed if record is not None else None
            if record is None or version is None or record.pending is not None or not self._store.should_fold(version):
                return False
            await self._fold_committed(chunk, record, version)
            return True

    async def _fold_committed(self, chunk: ChunkId, record: Record, version: Version, reserve: bool = False) -> Version:
        await self._store.flush()  # the commit of this version must not be undone: a fold may write in its block
        written = await self._folder.fold(record.free_blob(chunk), version, reserve=reserve)
        assert written.version.content == version.content, "folding changes neither version nor content"
        await self._make_durable(chunk, record, record.with_copy(version, written.version), written)
        return written.version

    def _base_record(self, chunk: ChunkId, update: Update) -> Record:
        """The record to which `update` applies. Raises VersionGap if it applies to another one."""
        try:
            record = self.record(chunk) or Record()
        except Corrupt:
            if update.kind != Kind.REPLACE:
                raise
            return Record()
        check_order(chunk, record, update)
        return record

    async def _make_durable(
        self, chunk: ChunkId, before: Record, after: Record, written: Written, check: Check | None = None
    ) -> None:  # writes the record `after` in the place of `before`
        try:
            await self.committer.commit(
                chunk, after, written.file, written.writes, written.blobs, check, written.counts
            )
        except ThreefsError as error:
            if self._store.failure is not None or isinstance(error, Corrupt):  # either record may be in the table
                self.fail(self._store.failure or error)
                self._uncertain_blocks += ((chunk, block) for block in before.blocks ^ after.blocks)
            elif written.fresh is not None and not isinstance(error, DiskFailed):
                self._free(written.fresh, 0)
            raise
        for block in before.blocks - after.blocks:
            self._free(block, 0)

    def _write(self, chunk: ChunkId, record: Record | None) -> int:
        try:
            return self._store.write({chunk: record})
        except (NoSpace, Unavailable) as error:
            self.fail(self._store.failure or error)
            raise

    def _note_unreadable(self, block: Block, error: DiskFailed) -> None:
        if not self._files.withhold(block):  # else its chunk has been changed while it was read
            self._unreadable_blocks.add(block)
        if len(self._unreadable_blocks) >= MAX_UNREADABLE:
            self.fail(DiskFailed(f"{len(self._unreadable_blocks)} blocks cannot be read: {error.message}"))

    def _free(self, block: Block, number: int) -> None:
        self._writer.torn.discard(block)
        self._files.free(block, number)
        if block in self._unreadable_blocks and self._files.withhold(block):
            self._unreadable_blocks.discard(block)

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        if self._closing:
            raise Unavailable(f"the store in {self._directory} is closed")
