"""Copies one store into a backup and keeps the copy up to date: a snapshot, then the changes since, over and over.

Files are written in threads, so that the process answers and renews its leases while a slow disk syncs.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from threefs_client import AsyncFileSystem

from threefs.cluster.manager_client import FramedManagerClient, ManagerClient
from threefs.env.clock import CLOCK, Clock
from threefs.env.disk import run_to_completion
from threefs.env.worker_threads import run_in_thread
from threefs.errors import Corrupt, NotFound, TooOld, Unavailable
from threefs.kv.engine_api import Pair
from threefs.paging import next_place
from threefs.rpc.methods import READ_LOG, READ_SNAPSHOT, Method, Rep, Req
from threefs.wire import backup_pb2 as pb
from threefs_backup import archive
from threefs_backup.archive import Snapshot, SnapshotWriter
from threefs_backup.log_file import LogFile

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALL_S = 30.0
#: A log longer than this, and longer than twice its snapshot, is replaced by a new snapshot.
_LONG_LOG_BYTES = 64 << 20


class Service(Protocol):
    """Calls to the service that has the store."""

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


class MetaServices:
    """The meta services of a cluster: each call goes to those that the manager knows at that moment."""

    def __init__(self, fs: AsyncFileSystem) -> None:
        self._fs = fs

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        link = self._fs.context
        found = link.cluster.routing.meta_addresses()
        if not found:
            raise Unavailable("no meta service is known to the manager now")
        services = ManagerClient([FramedManagerClient(link.peers, one) for one in found])
        return await services.call(method, request, timeout_s=timeout_s)


class Follower:
    def __init__(
        self,
        directory: Path,
        role: str,
        service: Service,
        *,
        progress: Callable[[str], None] = lambda line: None,
        clock: Clock = CLOCK,
    ) -> None:
        """A damaged backup stays until a new snapshot is complete. This reads the whole log."""
        self.role = role
        self.failure = ""  # why the last round did not succeed
        self._directory = directory
        self._service = service
        self._progress = progress
        self._clock = clock
        self._snapshot_reason = "there is none yet"  # why the next round takes a snapshot, if there is no log
        self._snapshot: Snapshot | None = None
        self._log: LogFile | None = None
        try:
            self._snapshot = archive.newest(directory, role)
            self._log = self._open() if self._snapshot else None
        except Corrupt as error:
            self._snapshot_reason = f"what was there is damaged: {error}"

    @property
    def as_of_ns(self) -> int:
        """The backup has everything that was acknowledged before this moment; 0: it has nothing."""
        return self._log.as_of_ns if self._log else 0

    @property
    def length_bytes(self) -> int:
        return (self._snapshot.length_bytes if self._snapshot else 0) + (self._log.length_bytes if self._log else 0)

    async def catch_up(self) -> None:
        """Copy everything that was acknowledged before the call. Raises the errors of the service and of the disk."""
        if self._log is None or self._is_long():
            await self._take_snapshot(self._snapshot_reason if self._log is None else "the log has become long")
        try:
            await self._read_log()
        except (TooOld, Corrupt) as error:
            await self._take_snapshot(str(error))
            await self._read_log()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _is_long(self) -> bool:
        assert self._snapshot is not None and self._log is not None
        return self._log.length_bytes > max(_LONG_LOG_BYTES, 2 * self._snapshot.length_bytes)

    def _open(self) -> LogFile:
        assert self._snapshot is not None
        return LogFile(self._snapshot.log, self._snapshot.change, self._snapshot.taken_ns)

    async def _take_snapshot(self, reason: str) -> None:
        """The previous snapshot stays until the new one is complete."""
        self._progress(f"{self.role}: taking a snapshot ({reason})")
        start_ns = self._clock.wall_ns()
        writer = await in_thread(SnapshotWriter, self._directory, self.role)
        try:
            page = await read_snapshot(self._service, lambda pairs: in_thread(writer.put, pairs))
            snapshot = await in_thread(writer.finish, page.lineage, page.sequence, start_ns)
        except BaseException:
            await in_thread(writer.abandon)
            raise
        if self._log is not None:
            self._log.close()
        self._snapshot = snapshot
        self._log = self._open()  # it is empty
        self._progress(f"{self.role}: the snapshot has {snapshot.records} records, {snapshot.length_bytes} bytes")

    async def _read_log(self) -> None:
        assert self._snapshot is not None and self._log is not None
        more = True
        while more:
            start_ns = self._clock.wall_ns()
            request = pb.ReadLogRequest(lineage=self._snapshot.lineage, after=self._log.change)
            reply = await self._service.call(READ_LOG, request, timeout_s=_CALL_S)
            more = reply.more
            if more:
                next_place("the log", self._log.change, reply.writes[-1].first if reply.writes else None)
            await in_thread(self._log.append, reply.writes, None if more else start_ns)


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Also if the caller is cancelled, it returns when the thread does not use the files any more."""
    return await run_to_completion(run_in_thread(function, *args))


async def read_snapshot(service: Service, put: Callable[[list[Pair]], Awaitable[None]]) -> pb.ReadSnapshotReply:
    """Hand all records of one state of the store to `put`; the state is that of the call or a later one.

    Returns the last page. Raises Unavailable if the snapshot is interrupted.
    """
    request = pb.ReadSnapshotRequest()
    while True:
        try:
            page = await service.call(READ_SNAPSHOT, request, timeout_s=_CALL_S)
        except NotFound as error:
            raise Unavailable(f"the snapshot was interrupted: {error}") from None
        await put([(pair.key, pair.value) for pair in page.pairs])
        if not page.more:
            return page
        end = page.pairs[-1].key if page.pairs else None
        after = next_place("the snapshot", request.after if request.begun else None, end)
        request = pb.ReadSnapshotRequest(snapshot=page.snapshot, after=after, begun=True)
