"""An open file: reads and writes at offsets, its length, and the write session at the meta service."""

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
from threefs_client.data.hole_retry import Patience

#: By so much each open file may exceed a quota.
_REPORT_BYTES = 64 << 20
#: So often a write is sent anew because locks of others were lost meanwhile.
_MOST_FENCES = 8


class Place(NamedTuple):
    """Of an append: bytes of the file, and the truncate version in which they are so."""

    offset: int
    end: int
    truncate_version: int


class Handle:
    def __init__(
        self, link: ClientContext, inode: pb.Inode, session: bytes, lease: int = 0, caller: pb.Caller | None = None
    ) -> None:
        """`lease` is the number of that under which a write session was opened."""
        self.link = link
        self.caller = caller  # who writes; what was permitted when the file was opened stays so
        self.inode: int = inode.inode
        self.name = ""  # as the user knows it, for errors
        self.change: int = inode.change  # as of the open, or later as long as only this handle has changed the file
        self.file = reads.of_inode(inode)
        self.layout = self.file.layout
        self._fence = inode.fence + 1  # goes with each write: what it allows is refused if locks were lost since
        self._session = session  # empty: for reading only
        self._lease = lease
        self._noted = False  # that it is open for reading
        if not session:
            self._note()
        self.over_quota = False  # it may not become longer
        self._counts = bool(inode.tree or inode.by_user)  # for a quota
        self._reported_end = self.file.length
        self._attempted_end = 0  # of all writes that were begun
        self._appends_end = 0  # of those that have come to an end
        self._unsettled = False  # something was written that the meta service does not know of
        self._unsettled_end = 0  # of those writes that were acknowledged
        self._since: int | None = None  # the truncate version that was known before the first of them was sent
        self._unsure = False  # a write ended with unknown outcome: the length must be asked of the chains

    async def call(self, method: Method[Req, Rep], request: Req) -> Rep:
        timeout_s = self.link.options.timeout_s
        try:
            return await self.link.meta.call(method, request, timeout_s=timeout_s, caller=self.caller)
        except ThreefsError as error:
            raise paths.named(error, self.inode, self.name) from None

    @property
    def length(self) -> int:
        return self.file.length

    @property
    def session(self) -> bytes:
        """The write session; empty: it is open for reading only."""
        return self._session

    @property
    def unsettled(self) -> bool:
        """Something was written that the meta service does not know of."""
        return self._unsettled

    def _note(self) -> None:
        """The file is to be kept while it is open here. A write session says so itself."""
        self._noted = True
        self.link.lease.reading(self.inode)

    # ---- reading ----

    async def read_into(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset` on; how many bytes there were. 0 only at the end of the file."""
        if not self._session and not self._noted:  # it came from the parent of this process
            self._note()
        if offset >= self.file.length and len(view):
            await self.refresh()  # somebody else may have made it longer
        self.link.access.note(self.file)
        wanted = min(len(view), self.file.length - offset)
        if wanted <= 0:
            return 0
        return await Patience(self.link, self.file, self._session).read(offset, view[:wanted])

    async def refresh(self) -> None:
        """Ask the meta service for the length."""
        request = pb.StatRequest(place=paths.of_inode(self.inode))
        reply = await self.link.meta.call(methods.STAT, request, timeout_s=self.link.options.timeout_s)
        self.file.learn(reply.inode)

    # ---- writing ----

    def changed(self, inode: pb.Inode) -> None:
        """The answer to a change that was made through this handle."""
        if inode.change == self.change + 1:
            self.change = inode.change  # nobody else's came between
        self.file.learn(inode)

    def updates(self, offset: int, data: memoryview) -> Iterator[ChunkUpdate]:
        """The chunk writes that a write at an offset consists of."""
        layout = self.layout
        chains = layout.chains(self.link.cluster.routing.tables.get(layout.table_id, ()))
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
        """Make changes of chunks, all that `make` says: anew if locks of others on the file were taken away meanwhile.

        Raises SessionLost if those of this process were.
        """
        for _ in range(_MOST_FENCES):
            try:
                await self.link.chunks.apply(make(), timeout_s=self.link.options.timeout_s)
                return
            except StaleFence:
                await self.refence()
        name = self.name or f"inode {self.inode}"
        raise Unavailable(f"locks on {name} are taken away from others again and again; try it once more")

    async def refence(self) -> None:
        """Go on under the newest fence, if nothing that is held here was lost. Raises SessionLost.

        The lease is asked about after the fence was: so a lock that is lost later raises the fence beyond that.
        """
        request = pb.StatRequest(place=paths.of_inode(self.inode))
        reply = await self.link.meta.call(methods.STAT, request, timeout_s=self.link.options.timeout_s)
        await self.link.lease.reconfirm()
        self.check_open(0, 0)
        self._fence = max(self._fence, reply.inode.fence + 1)

    @property
    def fence(self) -> int:
        """For changes of chunks under the session."""
        return self._fence

    async def write(self, offset: int, data: memoryview) -> None:
        """Durable on all replicas when it returns; the length is settled by `sync` or `close`."""
        if not self.link.lease.certain:
            await self.link.lease.confirm()
        await self.ask_quota()
        self.check_write(offset, len(data))
        if not len(data):
            return  # that does not make the file longer
        since = self.file.truncate_version
        try:
            await self.apply(lambda: list(self.updates(offset, data)))
        except BaseException:  # part of it may be there
            self.wrote(unsure=True)
            raise
        self.wrote(offset + len(data), since=since)
        await self.report()

    async def report(self) -> None:
        """Let a quota know of a file that grows: nothing but the length tells the meta service what is written."""
        if self._counts and self.file.written_end - self._reported_end >= _REPORT_BYTES:
            await self.sync()

    async def ask_quota(self) -> None:
        """If the quota was used up when the meta service was asked last: whether it still is."""
        if self.over_quota:
            request = pb.SyncRequest(mutation=self.link.meta.mutation(), inode=self.inode)
            self.over_quota = (await self.call(methods.SYNC, request)).over_quota

    async def append(self, data: memoryview) -> int:
        """Write behind all that anybody has written or appended; the end of it. Durable on all replicas then."""
        if not len(data):
            return self.file.length
        place = await self.place(len(data), self.link.meta.mutation())
        try:
            await self.write_placed(place, data)
        finally:
            self.end_append(place)
        return place.end

    async def place(self, length: int, mutation: pb.Mutation) -> Place:
        """Where the next `length` bytes are appended. Nobody else gets that place, whatever becomes of them: who asks
        again should do so under the same identity."""
        await self.ask_quota()
        self.check_write(self.file.length, length)
        request = pb.ReserveRequest(mutation=mutation, inode=self.inode, session=self._session, length=length)
        reply = await self.call(methods.RESERVE, request)
        self.changed(reply.inode)
        return Place(reply.offset, reply.offset + length, self.file.truncate_version)

    async def write_placed(self, place: Place, data: memoryview) -> None:
        """Append there. If that fails it may be done again, to the same place: then the bytes are there once."""
        await self.write(place.offset, data)
        self.end_append(place)

    def end_append(self, place: Place) -> None:
        """The bytes are there, or nobody tries again."""
        self._appends_end = max(self._appends_end, place.end)

    def check_write(self, offset: int, length: int) -> None:
        """Raises before anything is sent."""
        if self.over_quota and offset + length > self.file.length:
            raise QuotaExceeded("the quota is used up: the file cannot become longer")
        self.check_open(offset, length)

    def check_open(self, offset: int, length: int) -> None:
        """Whether such a write is possible at all, whatever quotas say."""
        layouts.check_range(self.layout.chunk_bytes, offset, length)
        if not self._session:
            raise SessionLost("the file is not open for writing in this process; open it again")
        self._attempted_end = max(self._attempted_end, offset + length)
        if self._lease < self.link.lease.number:
            raise SessionLost("this process was silent for too long, and the file was closed for it; open it again")

    def wrote(self, end: int = 0, *, since: int | None = None, unsure: bool = False) -> None:
        """Bytes up to `end` are on the chains. `since` is the truncate version that was known before they were sent.

        If somebody has cut the file since then, only the chains know whether they came before or after. So what is
        reported goes with the version of then, whatever was learned meanwhile.
        """
        self._unsettled = True
        self._unsure = self._unsure or unsure
        self._unsettled_end = max(self._unsettled_end, end)
        if since is not None:
            self._since = since if self._since is None else min(self._since, since)
            if since == self.file.truncate_version:
                self.file.written_end = max(self.file.written_end, end)
                self.file.length = max(self.file.length, end)

    def _report(self, request: pb.SyncRequest | pb.CloseRequest) -> None:
        """All that is not settled; from here on it counts as settled."""
        request.length_hint = self._unsettled_end
        request.truncate_version = self.file.truncate_version if self._since is None else self._since
        request.exact = self._unsure
        request.attempted_end = self._attempted_end
        request.written = self._unsettled
        self._unsettled = self._unsure = False  # a write that ends meanwhile sets it again
        self._unsettled_end, self._since = 0, None

    async def sync(self) -> None:
        """Settle the length at the meta service."""
        if not self._unsettled:
            return
        request = pb.SyncRequest(mutation=self.link.meta.mutation(), inode=self.inode)
        if self._appends_end:
            request.session, request.appends_end = self._session, self._appends_end
        self._report(request)
        try:
            reply = await self.call(methods.SYNC, request)
        except BaseException:
            self.wrote(request.length_hint, since=request.truncate_version, unsure=request.exact)
            raise
        self.over_quota = reply.over_quota
        self._reported_end = reply.inode.length
        self.changed(reply.inode)

    async def truncate(self, length: int) -> None:
        self.check_write(0, length)
        request = pb.TruncateRequest(
            mutation=self.link.meta.mutation(),
            place=paths.of_inode(self.inode),
            length=length,
            session=self._session,
        )
        end, since = self._unsettled_end, self._since
        self._unsettled_end, self._since = 0, None  # what was acknowledged before comes before
        try:
            reply = await self.call(methods.TRUNCATE, request)
        except BaseException:
            self.wrote(end, since=since)
            raise
        self.file.written_end = 0
        self.changed(reply.inode)

    async def close(self) -> None:
        """Settle the length and end the write session."""
        if not self._session:
            self.stop_reading()
            return
        request = self.ending()
        try:
            reply = await self.call(methods.CLOSE, request)
        except BaseException as error:
            self.link.endings.owe(request, self.caller, self._lease, error)
            raise
        self.link.lease.leave()
        self.changed(reply.inode)

    def ending(self) -> pb.CloseRequest:
        """The call that ends the write session, which counts no more from here on. After it the lease is left."""
        session, self._session = self._session, b""
        request = pb.CloseRequest(mutation=self.link.meta.mutation(), inode=self.inode, session=session)
        self._report(request)
        return request

    def stop_reading(self) -> None:
        """The file needs not be kept any more; of a file that is open for reading only, that is all of `close`."""
        if self._noted:
            self._noted = False
            self.link.lease.read(self.inode)

    def move_to(self, link: ClientContext) -> None:
        """Go on in a forked child: what the parent has open for writing stays the parent's."""
        self.link = link
        self._session = b""
        self._noted = False
        self._unsettled = self._unsure = False
