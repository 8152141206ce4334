"""An open file: reads and writes at offsets, its length, and the write session at the meta service."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from threefs import layout as layouts
from threefs.cluster.chunk_client import ChunkUpdate
from threefs.errors import QuotaExceeded, SessionLost, StaleFence, ThreefsError, Unavailable
from threefs.ids import ChunkId
from threefs.layout import spans
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data import reads
from threefs_client.data.hole_retry import HoleRetry

#: Each open file may exceed a quota by so many bytes.
_QUOTA_SYNC_BYTES = 64 << 20
#: A write is sent again so many times when locks of other clients were lost while it was under way.
_MAX_FENCE_RETRIES = 8


class AppendRange(NamedTuple):
    """Bytes that were reserved for an append, and the truncate version for which that holds."""

    offset: int
    end: int
    truncate_version: int


class Handle:
    def __init__(
        self, context: ClientContext, inode: pb.Inode, session: bytes, lease: int = 0, caller: pb.Caller | None = None
    ) -> None:
        """`lease` is the number of the lease under which the write session was opened."""
        self.context = context
        self.caller = caller  # on whose behalf; permissions were checked when the file was opened
        self.inode: int = inode.inode
        self.name = ""  # as the user knows it, for errors
        self.change: int = inode.change  # as of the open, or later while only this handle has changed the file
        self.file = reads.of_inode(inode)
        self.layout = self.file.layout
        self._fence = (
            inode.fence + 1
        )  # sent with each write; storage refuses a write whose fence is older than a lost lock
        self._session = session  # empty: for reading only
        self._lease = lease
        self._registered = False  # with the lease, as open for reading
        if not session:
            self._register()
        self.over_quota = False  # the file may not become longer
        self._has_quota = bool(inode.tree or inode.by_user)  # for a quota
        self._reported_end = self.file.length
        self._attempted_end = 0  # end of all writes that were begun
        self._finished_appends_end = 0  # end of the appends that are finished
        self._needs_sync = False  # bytes were written that were not yet reported to the meta service
        self._reporting = asyncio.Lock()  # held while a report is on its way: until then nobody may rely on it
        self._unsynced_end = 0  # end of the unsynced writes that were acknowledged
        self._unsynced_version: int | None = (
            None  # the truncate version that was known before the first of them was sent
        )
        self._length_unknown = False  # a write has an unknown outcome: the meta service must ask the chains

    async def call(self, method: Method[Req, Rep], request: Req) -> Rep:
        timeout_s = self.context.options.timeout_s
        try:
            return await self.context.meta.call(method, request, timeout_s=timeout_s, caller=self.caller)
        except ThreefsError as error:
            raise paths.with_file_name(error, self.inode, self.name) from None

    @property
    def length(self) -> int:
        return self.file.length

    @property
    def session(self) -> bytes:
        """The write session; empty: it is open for reading only."""
        return self._session

    @property
    def needs_sync(self) -> bool:
        """Something was written that the meta service may not know of."""
        return self._needs_sync or self._reporting.locked()

    def _register(self) -> None:
        """A removed file is kept while it is open here. A write session does so by itself."""
        self._registered = True
        self.context.lease.opened_for_read(self.inode)

    # ---- reading ----

    async def read_into(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset` on; returns how many bytes there were. 0 only at the end of the file."""
        if not self._session and not self._registered:  # inherited from the parent process
            self._register()
        if offset >= self.file.length and len(view):
            await self.refresh()  # another client may have made it longer
        self.context.atime_reporter.record_read(self.file)
        wanted = min(len(view), self.file.length - offset)
        if wanted <= 0:
            return 0
        return await HoleRetry(self.context, self.file, self._session).read(offset, view[:wanted])

    async def refresh(self) -> None:
        """Ask the meta service for the length."""
        request = pb.StatRequest(place=paths.inode_place(self.inode))
        reply = await self.context.meta.call(methods.STAT, request, timeout_s=self.context.options.timeout_s)
        self.file.apply_inode(reply.inode)

    # ---- writing ----

    def apply_reply(self, inode: pb.Inode) -> None:
        """Take over the inode from the reply to a change that was made through this handle."""
        if inode.change == self.change + 1:
            self.change = inode.change  # no change of another client came between
        self.file.apply_inode(inode)

    def updates(self, offset: int, data: memoryview) -> Iterator[ChunkUpdate]:
        """The chunk writes that a write at an offset consists of."""
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

    async def apply(self, make: Callable[[], Sequence[ChunkUpdate]]) -> None:
        """Apply the chunk updates that `make` returns. It is asked again for each attempt after locks of other clients
        on the file were lost.

        Raises SessionLost if locks of this process were lost.
        """
        for _ in range(_MAX_FENCE_RETRIES):
            try:
                await self.context.chunks.apply(make(), timeout_s=self.context.options.timeout_s)
                return
            except StaleFence:
                await self.refresh_fence()
        name = self.name or f"inode {self.inode}"
        raise Unavailable(
            f"{name} was not written: {_MAX_FENCE_RETRIES} times others lost a lock on it during the write; try again"
        )

    async def refresh_fence(self) -> None:
        """Take the newest fence, unless a lock of this process was lost. Raises SessionLost.

        The lease is renewed after the fence was read, so a lock that is lost later raises the fence beyond it.
        """
        request = pb.StatRequest(place=paths.inode_place(self.inode))
        reply = await self.context.meta.call(methods.STAT, request, timeout_s=self.context.options.timeout_s)
        await self.context.lease.renew_now()
        self.check_writable(0, 0)
        self._fence = max(self._fence, reply.inode.fence + 1)

    @property
    def fence(self) -> int:
        """For changes of chunks under the session."""
        return self._fence

    async def write(self, offset: int, data: memoryview) -> None:
        """Durable on all replicas when it returns. `sync` or `close` reports the length."""
        if not self.context.lease.is_valid:
            await self.context.lease.revalidate()
        await self.recheck_quota()
        self.check_write(offset, len(data))
        if not len(data):
            return  # an empty write does not make the file longer
        since = self.file.truncate_version
        try:
            await self.apply(lambda: list(self.updates(offset, data)))
        except BaseException:  # part of it may be there
            self.record_write(outcome_unknown=True)
            raise
        self.record_write(offset + len(data), truncate_version=since)
        await self.sync_for_quota()

    async def sync_for_quota(self) -> None:
        """Report the length of a file that grows within a quota: the meta service learns of writes from the length
        alone."""
        if self._has_quota and self.file.written_end - self._reported_end >= _QUOTA_SYNC_BYTES:
            await self.sync()

    async def recheck_quota(self) -> None:
        """If the quota was used up at the last report, ask whether it still is."""
        if self.over_quota:
            request = pb.SyncRequest(mutation=self.context.meta.mutation(), inode=self.inode)
            self.over_quota = (await self.call(methods.SYNC, request)).over_quota

    async def append(self, data: memoryview) -> int:
        """Write behind everything that any client has written or appended; returns the end. Durable when it returns."""
        if not len(data):
            return self.file.length
        place = await self.reserve_append(len(data), self.context.meta.mutation())
        try:
            await self.write_reserved(place, data)
        finally:
            self.append_finished(place)
        return place.end

    async def reserve_append(self, length: int, mutation: pb.Mutation) -> AppendRange:
        """Reserve the place of the next `length` appended bytes. No other append gets that place. A repeat must carry
        the same mutation identity, or it reserves another place."""
        await self.recheck_quota()
        self.check_write(self.file.length, length)
        request = pb.ReserveRequest(mutation=mutation, inode=self.inode, session=self._session, length=length)
        reply = await self.call(methods.RESERVE, request)
        self.apply_reply(reply.inode)
        return AppendRange(reply.offset, reply.offset + length, self.file.truncate_version)

    async def write_reserved(self, place: AppendRange, data: memoryview) -> None:
        """Write the appended bytes. After a failure it may be repeated: the bytes go to the same place."""
        await self.write(place.offset, data)
        self.append_finished(place)

    def append_finished(self, place: AppendRange) -> None:
        """The bytes are written, or the caller gives up."""
        self._finished_appends_end = max(self._finished_appends_end, place.end)

    def check_write(self, offset: int, length: int) -> None:
        """Raises before anything is sent."""
        if self.over_quota and offset + length > self.file.length:
            raise QuotaExceeded(
                "the quota is used up, so the file cannot become longer: remove something, or ask for a higher quota"
            )
        self.check_writable(offset, length)

    def check_writable(self, offset: int, length: int) -> None:
        """Raises unless such a write is possible, apart from quotas."""
        layouts.check_range(self.layout.chunk_bytes, offset, length)
        if not self._session:
            raise SessionLost("the file is not open for writing in this process; open it again")
        self._attempted_end = max(self._attempted_end, offset + length)
        if self._lease < self.context.lease.number:
            raise SessionLost("this process was silent for too long, and the file was closed for it; open it again")

    def record_write(self, end: int = 0, *, truncate_version: int | None = None, outcome_unknown: bool = False) -> None:
        """Bytes up to `end` are on the chains. `truncate_version` was known before they were sent.

        If another client has truncated the file since then, only the chains know whether these bytes came before or
        after. Therefore the next report to the meta service carries the oldest such version.
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

    def _fill_report(self, request: pb.SyncRequest | pb.CloseRequest) -> None:
        """Put what is not synced into the request. From here on it counts as synced."""
        request.length_hint = self._unsynced_end
        request.truncate_version = (
            self.file.truncate_version if self._unsynced_version is None else self._unsynced_version
        )
        request.exact = self._length_unknown
        request.attempted_end = self._attempted_end
        request.written = self._needs_sync
        self._needs_sync = self._length_unknown = False  # a write that ends during the call sets them again
        self._unsynced_end, self._unsynced_version = 0, None

    async def sync(self) -> None:
        """Report the length to the meta service. A report that another call has sent is waited for, and repeated if it
        failed."""
        if self.needs_sync:
            async with self._reporting:
                if self._needs_sync:
                    await self._report()

    async def _report(self) -> None:
        request = pb.SyncRequest(mutation=self.context.meta.mutation(), inode=self.inode)
        if self._finished_appends_end:
            request.session, request.appends_end = self._session, self._finished_appends_end
        self._fill_report(request)
        try:
            reply = await self.call(methods.SYNC, request)
        except BaseException:
            self.record_write(
                request.length_hint, truncate_version=request.truncate_version, outcome_unknown=request.exact
            )
            raise
        self.over_quota = reply.over_quota
        self._reported_end = reply.inode.length
        self.apply_reply(reply.inode)

    async def truncate(self, length: int) -> None:
        self.check_write(0, length)
        request = pb.TruncateRequest(
            mutation=self.context.meta.mutation(),
            place=paths.inode_place(self.inode),
            length=length,
            session=self._session,
        )
        end, since = self._unsynced_end, self._unsynced_version
        self._unsynced_end, self._unsynced_version = 0, None  # writes that were acknowledged before come before the cut
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
        """The request that ends the write session. The handle has no session from here on; release the lease after the
        call."""
        session, self._session = self._session, b""
        if self._reporting.locked():  # that report may come later, or fail: the chains know what it says
            self._needs_sync = self._length_unknown = True
        request = pb.CloseRequest(mutation=self.context.meta.mutation(), inode=self.inode, session=session)
        self._fill_report(request)
        return request

    def close_reading(self) -> None:
        """The file need not be kept any more. For a file that is open for reading only, this is all of `close`."""
        if self._registered:
            self._registered = False
            self.context.lease.closed_for_read(self.inode)

    def rebind_after_fork(self, context: ClientContext) -> None:
        """Use the context of a forked child. What the parent has open for writing stays the parent's."""
        self.context = context
        self._session = b""
        self._registered = False
        self._needs_sync = self._length_unknown = False
