"""Copies one store into a backup and keeps the copy up to date: a snapshot, then the changes since, over and over.

The changes since are copied while the snapshot is taken, too: the service keeps its log for a while only.

When the log of the changes has become long, a new snapshot is taken in the background. Meanwhile the old log is
continued, and the new snapshot gets a log of its own. It replaces the old one when its log has everything as well, so
the copy never falls behind for it.

Files are written in threads, so that the process answers and renews its leases while a slow disk syncs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from threefs_client import AsyncFileSystem

from threefs.background import cancel_and_wait
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
#: After one that has failed. If it has filled the disk, the log could not be continued meanwhile.
_RENEW_PAUSE_S = 600.0
_LOG_EVERY_S = 5.0  # while a snapshot is taken


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


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A new snapshot that is complete but not published, and its log."""

    writer: SnapshotWriter
    snapshot: Snapshot
    log: LogFile
    state_ns: int  # its records are as they were at this moment or before

    async def abandon(self) -> None:
        self.log.close()
        await in_thread(self.writer.abandon)


class Follower:
    def __init__(
        self,
        directory: Path,
        role: str,
        service: Service,
        *,
        may_replace: Callable[[int], bool] = lambda state_ns: True,
        progress: Callable[[str], None] = lambda line: None,
        clock: Clock = CLOCK,
    ) -> None:
        """A damaged backup stays until a new snapshot is complete. This reads all of it.

        While the log goes on, a new snapshot with the state of some moment waits until `may_replace` that moment.
        """
        self.role = role
        self.failure = ""  # why the last round did not succeed
        self.earlier_stores: list[Path] = []  # their copies, which are kept
        self._directory = directory
        self._service = service
        self._may_replace = may_replace
        self._progress = progress
        self._clock = clock
        self._snapshot_reason = "there is none yet"  # why the next round takes a snapshot, if there is no log
        self._snapshot: Snapshot | None = None
        self._log: LogFile | None = None
        self._taking: asyncio.Task[_Fresh] | None = None  # of a snapshot that replaces the present one
        self._renew_at = 0.0  # monotonic: no such snapshot begins before
        self._open_newest()

    def _open_newest(self) -> None:
        try:
            self._snapshot = archive.newest(self._directory, self.role)
            if self._snapshot is not None:
                archive.check_dump(self._snapshot)
            self._log = _open_log(self._snapshot) if self._snapshot else None
        except Corrupt as error:
            self._snapshot_reason = f"what was there is damaged: {error}"
        self._find_earlier_stores()

    def _find_earlier_stores(self) -> None:
        self.earlier_stores = archive.earlier_stores(self._directory, self.role)
        for path in self.earlier_stores:
            self._progress(
                f"{self.role}: {path} is the copy of the store that was there before a restore. If that left out a "
                f"part of it, `threefs restore --store {self.role} --snapshot {int(path.name)}` restores all of it; "
                "else remove that directory"
            )

    @property
    def as_of_ns(self) -> int:
        """The backup has everything that was acknowledged before this moment; 0: it has nothing."""
        return self._log.as_of_ns if self._log else 0

    @property
    def length_bytes(self) -> int:
        return (self._snapshot.length_bytes if self._snapshot else 0) + (self._log.length_bytes if self._log else 0)

    @property
    def is_taking_snapshot(self) -> bool:
        """A later `catch_up` replaces the present snapshot."""
        return self._taking is not None

    async def snapshot_taken(self) -> None:
        """Wait until the snapshot that is being taken is complete, or has failed."""
        if self._taking is not None:
            await asyncio.wait([self._taking])

    async def catch_up(self) -> None:
        """Copy everything that was acknowledged before the call. Raises the errors of the service and of the disk."""
        reason = self._snapshot_reason
        if self._snapshot is not None and self._log is not None:
            try:
                await self._read_log(self._snapshot.lineage, self._log)
            except (TooOld, Corrupt) as error:
                reason = str(error)
            else:
                await self._renew_snapshot()
                return
        await self._drop_fresh()
        await self._replace(await self._take_snapshot(reason))

    async def close(self) -> None:
        await self._drop_fresh()
        if self._log is not None:
            self._log.close()

    def _is_long(self) -> bool:
        assert self._snapshot is not None and self._log is not None
        return self._log.length_bytes > max(_LONG_LOG_BYTES, 2 * self._snapshot.length_bytes)

    async def _renew_snapshot(self) -> None:
        """Begin a new snapshot if the log is long, or go on with the one that was begun."""
        if self._taking is None:
            if self._is_long() and self._clock.monotonic() >= self._renew_at:
                self._taking = asyncio.create_task(self._take_snapshot("the log has become long"))
            return
        if not self._taking.done():
            return
        try:
            fresh = self._taking.result()
            await self._read_log(fresh.snapshot.lineage, fresh.log)
        except OSError:  # ThreefsError is one too
            self._renew_at = self._clock.monotonic() + _RENEW_PAUSE_S
            await self._drop_fresh()
            raise
        if self._may_replace(fresh.state_ns):
            self._taking = None
            await self._replace(fresh)

    async def _take_snapshot(self, reason: str) -> _Fresh:
        """Its log has everything that was acknowledged before the end of the snapshot."""
        self._progress(f"{self.role}: taking a snapshot ({reason})")
        start_ns, state_ns = self._clock.wall_ns(), 0
        log_read_at = self._clock.monotonic()
        writer = await in_thread(SnapshotWriter, self._directory, self.role)
        log: LogFile | None = None
        try:
            async for page in snapshot_pages(self._service):
                if log is None:
                    state_ns = self._clock.wall_ns()  # all pages are of the moment of the first one
                    log = await in_thread(LogFile, writer.log, page.sequence, start_ns)
                await in_thread(writer.put, pairs_of(page))
                if self._clock.monotonic() - log_read_at >= _LOG_EVERY_S:
                    await self._read_log(page.lineage, log)
                    log_read_at = self._clock.monotonic()
            assert log is not None, "a snapshot has a page"
            snapshot = await in_thread(writer.complete, page.lineage, page.sequence, start_ns)
            await self._read_log(snapshot.lineage, log)
        except BaseException:
            if log is not None:
                log.close()
            await in_thread(writer.abandon)
            raise
        return _Fresh(writer, snapshot, log, state_ns)

    async def _replace(self, fresh: _Fresh) -> None:
        """From now on the fresh snapshot and its log are the copy."""
        try:
            snapshot = await in_thread(fresh.writer.publish, fresh.snapshot)
        except BaseException:  # it may have got its name nevertheless
            await fresh.abandon()
            self._take_over(None, None)
            await in_thread(self._open_newest)
            raise
        self._take_over(snapshot, fresh.log)
        await in_thread(self._find_earlier_stores)
        records, length_bytes = fresh.snapshot.records, fresh.snapshot.length_bytes
        self._progress(f"{self.role}: the snapshot has {records} records, {length_bytes} bytes")

    def _take_over(self, snapshot: Snapshot | None, log: LogFile | None) -> None:
        if self._log is not None:
            self._log.close()
        self._snapshot, self._log = snapshot, log

    async def _drop_fresh(self) -> None:
        """Give up the snapshot that is being taken, or that waits to replace the present one."""
        taking, self._taking = self._taking, None
        if taking is not None:
            await cancel_and_wait(taking)
            if not taking.cancelled() and taking.exception() is None:
                await taking.result().abandon()

    async def _read_log(self, lineage: str, log: LogFile) -> None:
        more = True
        while more:
            start_ns = self._clock.wall_ns()
            request = pb.ReadLogRequest(lineage=lineage, after=log.change, checksum=log.checksum)
            reply = await self._service.call(READ_LOG, request, timeout_s=_CALL_S)
            more = reply.more
            if more:
                next_place("the log", log.change, reply.writes[-1].first if reply.writes else None)
            await in_thread(log.append, reply.writes, None if more else start_ns)


def _open_log(snapshot: Snapshot) -> LogFile:
    return LogFile(snapshot.log, snapshot.change, snapshot.taken_ns)


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Also if the caller is cancelled, it returns when the thread does not use the files any more."""
    return await run_to_completion(run_in_thread(function, *args))


async def snapshot_pages(service: Service) -> AsyncIterator[pb.ReadSnapshotReply]:
    """All records of one state of the store, which is that of the call or a later one.

    Raises Unavailable if the snapshot is interrupted.
    """
    request = pb.ReadSnapshotRequest()
    while True:
        try:
            page = await service.call(READ_SNAPSHOT, request, timeout_s=_CALL_S)
        except NotFound as error:
            raise Unavailable(f"the snapshot was interrupted: {error}") from None
        yield page
        if not page.more:
            return
        end = page.pairs[-1].key if page.pairs else None
        after = next_place("the snapshot", request.after if request.begun else None, end)
        request = pb.ReadSnapshotRequest(snapshot=page.snapshot, after=after, begun=True)


def pairs_of(page: pb.ReadSnapshotReply) -> list[Pair]:
    return [(pair.key, pair.value) for pair in page.pairs]
