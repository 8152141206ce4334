"""An open file: reads and writes at offsets, its length, and the write session at the meta service."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from threefs import layout as layouts
from threefs.backoff import Backoff
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.cluster.routing_watcher import await_table
from threefs.errors import QuotaExceeded, SessionLost, StaleFence, ThreefsError, Unavailable
from threefs.ids import ChunkId
from threefs.inflight_ranges import writer_of
from threefs.layout import spans
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data import reads
from threefs_client.data.hole_retry import HoleRetry

#: An open file may exceed a quota by this many bytes before its length is reported.
_QUOTA_SYNC_BYTES = 64 << 20
#: How often a write is sent again because a lock of another client was lost while it was under way.
_MAX_FENCE_RETRIES = 8
_TRUNCATE_PAUSE = Backoff(0.002, 0.25)


class AppendRange(NamedTuple):
    """The range that was reserved for an append, and the truncate version and the fence for which it is valid."""

    offset: int
    end: int
    truncate_version: int
    fence: int
    writer: int

    def is_cut(self, inode: pb.Inode) -> bool:
        """Whether a truncate takes the range away, or has done so."""
        if 0 < inode.cutting <= self.end:
            return True
        return inode.truncate_version != self.truncate_version and not any(
            (one.writer, one.truncate_version, one.end) == (self.writer, self.truncate_version, self.end)
            for one in inode.appends
        )


class AppendCut(Exception):
    """The file is being truncated, or was: the range of an append is not its own any more."""


class Handle:
    _registered = False  # with the lease, as open for reading

    def __init__(
        self, context: ClientContext, inode: pb.Inode, session: bytes, lease: int = 0, caller: pb.Caller | None = None
    ) -> None:
        """`lease` is the number of the lease under which the write session was opened."""
        self.context = context
        self.caller = caller  # the user on whose behalf; permissions were checked by the open
        self.inode: int = inode.inode
        self.name = ""  # as the user knows it, for errors
        self.change: int = inode.change  # as of the open, or later while only this handle has changed the file
        self.file = reads.of_inode(inode, context.lease.number)
        self.layout = self.file.layout
        # Sent with each write. Storage refuses a write whose fence is older than a lost lock.
        self._fence = inode.fence + 1
        self._session = session  # empty: open for reading only
        self._lease = lease
        if not session:
            self.register()
        self.over_quota = False  # the quota is used up: the file may not become longer
        self._has_quota = bool(inode.tree or inode.by_user)  # its length counts for a quota
        self._reported = self.file.truncate_version, self.file.length  # the length that the meta service has answered
        self._attempted_end = 0  # greatest end of all attempted writes
        self._last_append = 0, 0  # (truncate version, end) of the last finished append
        self.shown_ns = 0  # time of the last write, if a program was told it while the meta service did not know it
        self._needs_sync = False  # there are writes that were not reported to the meta service yet
        self._reporting = asyncio.Lock()  # held while a report is on its way: only its answer makes it certain
        self._unsynced_end = 0  # greatest end of acknowledged writes that were not reported yet
        self._unsynced_version: int | None = None  # oldest truncate version that was known before one of them was sent
        self._length_unknown = False  # a write has an unknown outcome: the meta service must ask the chains
        self._changes = 0  # calls that change chunks now

    async def call(self, method: Method[Req, Rep], request: Req) -> Rep:
        timeout_s = self.context.options.timeout_s
        try:
            return await self.context.meta.call(method, request, timeout_s=timeout_s, caller=self.caller)
        except ThreefsError as error:
            raise self.named(error) from None

    def named(self, error: ThreefsError) -> ThreefsError:
        """The error as the user understands it."""
        return paths.with_file_name(error, self.inode, self.name)

    @property
    def length(self) -> int:
        return self.file.length

    @property
    def session(self) -> bytes:
        """The write session; empty if the file is open for reading only."""
        return self._session

    @property
    def needs_sync(self) -> bool:
        """There are writes that the meta service may not know of."""
        return self._needs_sync or self._reporting.locked()

    @property
    def length_is_reported(self) -> bool:
        """The meta service knows a length that holds all bytes that this handle has written."""
        if self._reporting.locked() or self._length_unknown or any(self._last_append):
            return False
        return self._unsynced_end <= self._reported_end and self._unsynced_version in (None, self.file.truncate_version)

    @property
    def _reported_end(self) -> int:
        """The meta service knows at least this length. One from before a truncate says nothing."""
        version, end = self._reported
        return end if version == self.file.truncate_version else 0

    @property
    def _appended_end(self) -> int:
        """The meta service has given places up to here at least."""
        version, end = self._last_append
        return end if version == self.file.truncate_version else 0

    def register(self) -> None:
        """Keep the file while it is open for reading, even if it is removed. A write session keeps it, too."""
        self._registered = True
        self.context.lease.opened_for_read(self.inode)

    def __del__(self) -> None:
        if self._registered:  # a program has forgotten to close it
            self._registered = False  # its file object may still close it: the collector frees both in any order
            self.context.lease.forgotten_for_read(self.inode)

    # ---- reading ----

    async def read_into(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset` on. Returns the number of bytes; 0 only at the end of the file."""
        if offset >= self.file.length and len(view):
            await self.refresh()  # another client may have extended it
        self.context.atime_reporter.record_read(self.file)
        wanted = min(len(view), self.file.length - offset)
        if wanted <= 0:
            return 0
        try:
            return await HoleRetry(self.context, self.file, self._session).read(offset, view[:wanted])
        except ThreefsError as error:
            raise self.named(error) from None

    async def refresh(self) -> None:
        """Ask the meta service for the length."""
        await self._fetch()

    async def _fetch(self) -> pb.Inode:
        request = pb.StatRequest(place=paths.inode_place(self.inode))
        reply = await self.call(methods.STAT, request)
        self.file.apply_inode(reply.inode, self.context.lease.number)
        return reply.inode

    # ---- writing ----

    def apply_reply(self, inode: pb.Inode) -> None:
        """Take over the inode from the reply to a change that this handle made."""
        if inode.change == self.change + 1:
            self.change = inode.change  # no change of another client came between
        self.file.apply_inode(inode, self.context.lease.number)

    def updates(self, offset: int, data: memoryview) -> Iterator[ChunkUpdate]:
        """The chunk writes of a write at an offset."""
        layout = self.layout
        chains = layout.chains(self.context.cluster.routing.tables.get(layout.table_id, ()))
        at = 0
        for number, within, length in spans(layout.chunk_bytes, offset, len(data)):
            yield ChunkUpdate(
                chains[number % layout.stripe],
                ChunkId(self.inode, number),
                storage_pb2.WRITE,
                layout.chunk_bytes,
                within,
                length,
                data[at : at + length],
                fence=self._fence,
            )
            at += length

    async def apply(self, make: Callable[[], Sequence[ChunkUpdate]], reserved: AppendRange | None = None) -> None:
        """Apply the chunk updates that `make` returns. If the fence of the file was raised before they arrive, because
        another client has lost a lock, `make` is called again, and its updates have a newer fence.

        Raises SessionLost if locks of this process were lost, and AppendCut if the range that was `reserved` for an
        append is cut off.
        """
        sound_fence = self._fence if reserved is None else reserved.fence  # the place stands if no later one is raised
        for _ in range(_MAX_FENCE_RETRIES):
            if reserved is not None and sound_fence < self._fence:
                inode = await self.refresh_fence()
                if reserved.is_cut(inode):
                    raise AppendCut
                sound_fence = inode.fence + 1
                if sound_fence < self._fence:
                    continue  # another write of this handle has read a later one
            sent = self._fence
            try:
                with self.changing_chunks():
                    await self.await_table()
                    await self.context.chunks.apply(make(), timeout_s=self.context.options.timeout_s)
                return
            except StaleFence:
                await self.follow_fence(sent)
            except ThreefsError as error:
                raise self.named(error) from None
        name = self.name or f"inode {self.inode}"
        raise Unavailable(
            f"{name} was not written: other clients lost a lock on it during each of {_MAX_FENCE_RETRIES} attempts; "
            "try again"
        )

    async def await_table(self) -> None:
        """Wait until the routing has the chain table of the file. Raises NotServing."""
        context = self.context
        await await_table(context.cluster, self.layout.table_id, context.options.timeout_s, context.clock)

    @contextmanager
    def changing_chunks(self) -> Iterator[None]:
        """Chunks are being changed. If the handle is closed before the end, the length follows from the chains, and
        what they have not stored by then they never store."""
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1

    async def follow_fence(self, sent: int) -> None:
        """Take a fence that the chains accept, after they have refused `sent`. Raises SessionLost."""
        self.check_writable(0, 0)  # it may have been closed, and that is why the fence was raised
        await self.refresh_fence()
        if self._fence <= sent:
            await self.raise_fence()

    async def raise_fence(self) -> None:
        """The metadata do not know the fence that the chains have: they were restored from a backup that is older.
        A report of an unknown outcome has them raise and read it. Raises SessionLost."""
        self.record_write(outcome_unknown=True)
        await self.sync()
        await self.refresh_fence()

    async def refresh_fence(self) -> pb.Inode:
        """Take the newest fence, unless a lock of this process was lost. Returns the inode. Raises SessionLost.

        The lease is renewed after the fence was read, so a lock that is lost later raises the fence beyond it.
        """
        request = pb.StatRequest(place=paths.inode_place(self.inode))
        reply = await self.call(methods.STAT, request)
        await self.context.lease.renew_now()
        self.check_writable(0, 0)
        self._fence = max(self._fence, reply.inode.fence + 1)
        return reply.inode

    @property
    def fence(self) -> int:
        """The fence for changes of chunks under the session."""
        return self._fence

    async def write(self, offset: int, data: memoryview, reserved: AppendRange | None = None) -> None:
        """Durable on all replicas when it returns. `sync` or `close` reports the length. Raises AppendCut if the place
        was `reserved` for an append, and is lost."""
        if not self.context.lease.is_valid:
            await self.context.lease.revalidate()
        await self.recheck_quota()
        self.check_write(offset, len(data))
        if not len(data):
            return  # an empty write does not make the file longer
        since = self.file.truncate_version
        try:
            await self.apply(lambda: list(self.updates(offset, data)), reserved)
        except AppendCut:
            raise
        except BaseException:  # a part of the bytes may be written
            self.record_write(outcome_unknown=True)
            raise
        self.record_write(offset + len(data), truncate_version=since)
        await self.sync_for_quota()

    async def sync_for_quota(self) -> None:
        """Report the length of a file that grows within a quota, because the meta service counts reported lengths."""
        if self._has_quota and self.file.written_end - self._reported_end >= _QUOTA_SYNC_BYTES:
            await self.sync()

    async def recheck_quota(self) -> None:
        """If the quota was used up at the last report, ask the meta service whether it still is."""
        if self.over_quota:
            request = pb.SyncRequest(mutation=self.context.meta.mutation(), inode=self.inode)
            self.over_quota = (await self.call(methods.SYNC, request)).over_quota

    async def append(self, data: memoryview) -> int:
        """Write behind everything that any client has written or appended. Returns the end of the bytes, which are
        durable then."""
        if not len(data):
            return self.file.length
        while True:
            reserved = await self.reserve_append(len(data), self.context.meta.mutation())
            try:
                await self.write_reserved(reserved, data)
                return reserved.end
            except AppendCut:
                await self.wait_for_truncate()
            finally:
                self.append_finished(reserved)

    async def wait_for_truncate(self) -> None:
        """After AppendCut: wait until the truncate is over. Raises Unavailable."""
        deadline, attempts = self.context.deadline(), 0
        while (await self._fetch()).cutting:
            if self.context.clock.monotonic() >= deadline:
                raise Unavailable(f"{self.name or f'inode {self.inode}'} is still being truncated; try again")
            await self.context.clock.sleep(_TRUNCATE_PAUSE.pause_s(attempts, self.context.random))
            attempts += 1

    async def reserve_append(self, length: int, mutation: pb.Mutation) -> AppendRange:
        """Reserve the range of the next `length` appended bytes, which no other append gets. A repeat must have the
        same mutation identity, or it reserves another range."""
        await self.recheck_quota()
        self.check_write(self.file.length, length)
        if self._unsynced_end > max(self._reported_end, self._appended_end):  # the place must be behind that
            await self.sync()
        request = pb.ReserveRequest(mutation=mutation, inode=self.inode, session=self._session, length=length)
        fence = self._fence
        reply = await self.call(methods.RESERVE, request)
        self.apply_reply(reply.inode)
        writer = writer_of(self._session)
        return AppendRange(reply.offset, reply.offset + length, reply.inode.truncate_version, fence, writer)

    async def write_reserved(self, reserved: AppendRange, data: memoryview) -> None:
        """Write the appended bytes. After a failure this may be repeated: the bytes go to the same range."""
        await self.write(reserved.offset, data, reserved)
        self.append_finished(reserved)

    def append_finished(self, reserved: AppendRange) -> None:
        """The bytes are written, or the caller has given up: the next report ends the place, and those before it."""
        last = reserved.truncate_version, reserved.end
        if last != self._last_append:  # also behind a report that the write itself has sent, because of a quota
            self._last_append, self._needs_sync = last, True

    def check_write(self, offset: int, length: int) -> None:
        """Raise QuotaExceeded, and what `check_writable` raises, before anything is sent."""
        if self.over_quota and offset + length > self.file.length:
            full = f"the quota is used up, so inode {self.inode} cannot become longer"
            raise self.named(QuotaExceeded(f"{full}: remove something, or ask for a higher quota"))
        self.check_writable(offset, length)

    def check_writable(self, offset: int, length: int) -> None:
        """Raise SessionLost or FileTooLarge unless such a write is possible, apart from quotas."""
        layouts.check_range(self.layout.chunk_bytes, offset, length)
        if not self._session:
            raise SessionLost("the file is not open for writing in this process; open it again")
        self._attempted_end = max(self._attempted_end, offset + length)
        if self._lease < self.context.lease.number:
            raise SessionLost(
                "the lease of this process has expired, and with it the write session; open the file again"
            )

    def record_write(self, end: int = 0, *, truncate_version: int | None = None, outcome_unknown: bool = False) -> None:
        """Bytes up to `end` are written. `truncate_version` was known before they were sent.

        If another client has truncated the file since then, only the chains know whether these bytes came before or
        after the truncate. So the next report to the meta service has the oldest such version.
        """
        self._needs_sync = True
        self._length_unknown = self._length_unknown or outcome_unknown
        self._unsynced_end = max(self._unsynced_end, end)
        if truncate_version is not None:
            self._unsynced_version = (
                truncate_version if self._unsynced_version is None else min(self._unsynced_version, truncate_version)
            )
            if truncate_version == self.file.truncate_version:
                self.file.written_end = max(self.file.written_end, end)
                self.file.length = max(self.file.length, end)

    def report_for(self, earlier: "Handle") -> None:
        """Report what an earlier handle of the file has written and not reported, as its session is lost. Its writes
        may still be on their way: the fence that the report raises ends them, on all chains that they may reach."""
        self._attempted_end = max(self._attempted_end, earlier._attempted_end)
        if earlier.needs_sync or earlier._changes:
            since = earlier.file.truncate_version
            self.record_write(earlier.file.written_end, truncate_version=since, outcome_unknown=True)

    def _fill_report(self, request: pb.SyncRequest | pb.CloseRequest) -> None:
        """Put the unsynced state into the request. It counts as synced from here on."""
        request.length_hint = self._unsynced_end
        request.truncate_version = (
            self.file.truncate_version if self._unsynced_version is None else self._unsynced_version
        )
        request.exact = self._length_unknown
        request.attempted_end = self._attempted_end
        request.written = self._needs_sync
        request.shown_ns = self.shown_ns
        self._needs_sync = self._length_unknown = False  # a write that ends during the call sets them
        self._unsynced_end, self._unsynced_version = 0, None

    async def sync(self) -> None:
        """Report the length to the meta service. A report that another call has sent is waited for, and repeated if it
        failed."""
        if self.needs_sync:
            async with self._reporting:
                if self._needs_sync:
                    await self._report()

    async def end_unknown_writes(self) -> None:
        """After this no write of unknown outcome takes effect any more: none shows behind a later truncate."""
        if self._length_unknown:
            await self.sync()

    async def _report(self) -> None:
        request = pb.SyncRequest(mutation=self.context.meta.mutation(), inode=self.inode)
        if any(self._last_append):
            request.session = self._session
            request.appends_version, request.appends_end = self._last_append
        self._fill_report(request)
        try:
            reply = await self.call(methods.SYNC, request)
        except BaseException:
            self.record_write(
                request.length_hint, truncate_version=request.truncate_version, outcome_unknown=request.exact
            )
            raise
        self.over_quota = reply.over_quota
        self._reported = reply.inode.truncate_version, reply.inode.length
        self.apply_reply(reply.inode)

    async def truncate(self, length: int) -> None:
        self.check_write(0, length)
        await self.end_unknown_writes()
        if any(self._last_append):
            await self.sync()  # or readers would take the hole of a longer file for a part of that append
        request = pb.TruncateRequest(
            mutation=self.context.meta.mutation(),
            place=paths.inode_place(self.inode),
            length=length,
            session=self._session,
        )
        end, since = self._unsynced_end, self._unsynced_version
        self._unsynced_end, self._unsynced_version = 0, None  # the truncate comes after acknowledged writes
        try:
            reply = await self.call(methods.TRUNCATE, request)
        except BaseException:
            self.record_write(end, truncate_version=since)
            raise
        self.file.written_end = 0
        self.apply_reply(reply.inode)

    async def close(self) -> None:
        """Report the length, and end the write session."""
        if not self._session:
            self.close_reading()
            return
        request = self.close_request()
        try:
            reply = await self.call(methods.CLOSE, request)
        except BaseException as error:
            self.context.session_closer.close_later(request, self.caller, self._lease, error)
            raise
        self.context.lease.release()
        self.apply_reply(reply.inode)

    def close_request(self) -> pb.CloseRequest:
        """The request that ends the write session. The handle has no session from here on. The caller sends the
        request, and releases the lease."""
        session, self._session = self._session, b""
        # A report on its way may come later, or fail, and so may a write: the chains know what they say.
        if self._reporting.locked() or self._changes:
            self._needs_sync = self._length_unknown = True
        request = pb.CloseRequest(mutation=self.context.meta.mutation(), inode=self.inode, session=session)
        self._fill_report(request)
        return request

    def close_reading(self) -> None:
        """The file need not be kept for this handle any more. A file that is open for reading only needs no more to be
        closed."""
        if self._registered:
            self._registered = False
            self.context.lease.closed_for_read(self.inode)

    def rebind_after_fork(self, context: ClientContext) -> None:
        """Use the context of a forked child. A write session stays with the parent. The caller has its loop call
        `register`."""
        self.context = context
        self._session = b""
        self._registered = False
        self._needs_sync = self._length_unknown = False
