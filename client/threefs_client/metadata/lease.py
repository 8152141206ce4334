"""The lease of a client at the meta service, under which it holds write sessions, locks, and files open for reading.

The lease is renewed while the client holds anything, and returned when the client has held nothing for a while: an idle
client costs nothing. An open for reading does not register the file. A file that stays open for some time is reported
with the next renewal, so that it is kept if it loses its last name. That is soon enough, because a removed file is kept
for the length of a lease in any case.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError, Unavailable
from threefs.leases import RENEWALS_PER_LEASE, client_lease_s, client_reliance_s
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb

_MAX_FILES = 1024  # in one renewal
_CLOSE_TIMEOUT_S = 2.0

_LOG = LibraryLogger(__name__)

Renew = Callable[[pb.RenewLeaseRequest, float], Awaitable[pb.RenewLeaseReply]]


class Lease:
    """The lease of one client process, on its event loop. `renew` makes the call within the given seconds."""

    def __init__(
        self, client: bytes, renew: Renew, lease_s: Callable[[], float], *, timeout_s: float, clock: Clock
    ) -> None:
        """`lease_s` returns T of the cluster. `timeout_s` is how long an operation waits for the lease."""
        self.number = 0  # as last received; sessions and locks under a lower number are lost
        self.on_lost: list[Callable[[], None]] = []  # called when sessions and locks were lost
        self._client = client
        self._renew = renew
        self._lease_s = lease_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._valid_until = 0.0  # by the local clock
        self._requests = 0  # sent so far
        self._is_unsure = False  # a renewal or a return was not answered: the service may have a lease of some age
        self._holders = 0  # sessions and locks
        self._read_opens: dict[int, list[float | int]] = {}  # inode -> [time of the first open, number of opens]
        self._forgotten: deque[int] = deque()  # inodes of opens, whose objects were freed in any thread
        self._reported: set[int] = set()  # inodes that the meta service keeps as open for reading
        self._renewal_lock = asyncio.Lock()
        self._background = BackgroundTasks()
        self._renewal_task: asyncio.Task[None] | None = None

    @property
    def duration_s(self) -> float:
        return client_lease_s(self._lease_s())

    def _end_of_reliance(self, sent_at: float) -> float:
        """The end of the lease that a request of that moment begins or renews, as this client believes in it."""
        return sent_at + client_reliance_s(self._lease_s())

    @property
    def remaining_s(self) -> float:
        """Until it ends without a renewal; 0 without a lease."""
        return max(0.0, self._valid_until - self._clock.monotonic())

    # ---- holders ----

    async def acquire(self) -> None:
        """Call this before a session or lock is requested, and `release` once it has ended or was refused. Raises
        Unavailable."""
        self._holders += 1
        self._start_renewing()
        try:
            if self._renewal_lock.locked():  # the old lease may be on its way back
                async with self._renewal_lock:
                    pass
            if self.number or self._is_unsure or self._holders > 1:
                await self.revalidate()  # under a lease that is about to end, what is requested would end with it
        except BaseException:  # the caller will request nothing
            self._holders -= 1
            raise
        if not self.number and not self.is_valid:  # else it may have begun with an earlier one, not answered yet
            self._valid_until = self._end_of_reliance(self._clock.monotonic())  # the lease begins with this request

    def granted(self, number: int) -> None:
        """The session or lock was granted under the lease of that number."""
        before, self.number = self.number, max(self.number, number)
        if 0 < before < self.number:
            self._notify_lost()

    def _notify_lost(self) -> None:
        for callback in self.on_lost:
            callback()

    def release(self) -> None:
        self._holders -= 1

    def opened_for_read(self, inode: int) -> None:
        """A file was opened for reading. Call `closed_for_read` when it is closed."""
        found = self._read_opens.get(inode)
        if found is None:
            self._read_opens[inode] = [self._clock.monotonic(), 1]
            self._start_renewing()
        else:
            found[1] += 1

    def closed_for_read(self, inode: int) -> None:
        found = self._read_opens[inode]
        found[1] -= 1
        if not found[1]:
            del self._read_opens[inode]

    def forgotten_for_read(self, inode: int) -> None:
        """The same, in any thread: nobody has closed the file, and nobody can read it any more."""
        self._forgotten.append(inode)

    def _close_forgotten(self) -> None:
        while self._forgotten:
            self.closed_for_read(self._forgotten.popleft())

    @property
    def is_valid(self) -> bool:
        """Whether the lease has surely not expired. If it may have, `revalidate` finds out."""
        return self._clock.monotonic() < self._valid_until

    async def revalidate(self) -> None:
        """Renew the lease if it may have expired. If sessions and locks were lost, `number` is another one afterwards.

        Raises Unavailable when no meta service answers."""
        deadline = self._clock.monotonic() + self._timeout_s
        if not self.is_valid:
            async with self._renewal_lock:
                if not self.is_valid:
                    self._check_time(deadline)
                    await self._renew_all(deadline)

    async def renew_now(self) -> None:
        """Renew the lease even if it seems valid. If `number` stays, the lease had not expired when this was called."""
        deadline = self._clock.monotonic() + self._timeout_s
        async with self._renewal_lock:
            self._check_time(deadline)
            await self._renew_all(deadline)

    def _check_time(self, deadline: float) -> None:
        """Raises Unavailable after the deadline: earlier renewals were not answered either."""
        if self._clock.monotonic() >= deadline:
            raise Unavailable(
                f"no meta service has renewed the lease of this process within {self._timeout_s:g} s (option timeout_s)"
            )

    # ---- renewing ----

    def _start_renewing(self) -> None:
        if self._renewal_task is None or self._renewal_task.done():
            self._renewal_task = self._background.run("renewal of the lease", self._renew_until_idle())

    async def _renew_until_idle(self) -> None:
        while True:
            await self._clock.sleep(self.duration_s / RENEWALS_PER_LEASE)
            try:
                self._close_forgotten()
                async with self._renewal_lock:
                    if self._is_idle and self.number:
                        await self._return()
                    if self._is_idle:
                        return
                    await self._renew_all()
            except ThreefsError as error:
                _LOG.info("the lease could not be renewed now", error=str(error))
            except Exception:
                _LOG.exception("the lease could not be renewed")

    @property
    def _is_idle(self) -> bool:
        return not self._holders and not self._read_opens and not self._reported

    async def _renew_all(self, deadline: float = 0.0) -> None:
        """Renew and report files: several calls if there are many files, no call if nothing is held. The calls are
        repeated until the deadline, and at least until the next renewal is due."""
        old_enough = self._clock.monotonic() - self.duration_s / RENEWALS_PER_LEASE / 2
        hold = [n for n, (since, _) in self._read_opens.items() if n not in self._reported and since <= old_enough]
        drop = self._reported.difference(self._read_opens)
        if not self._holders and not self._reported and not hold:
            return
        holds = iter(hold)
        drops = iter(drop)
        while True:
            request = pb.RenewLeaseRequest(
                client=self._client, hold=islice(holds, _MAX_FILES), drop=islice(drops, _MAX_FILES)
            )
            await self._send(request, max(deadline - self._clock.monotonic(), self.duration_s / RENEWALS_PER_LEASE))
            if len(request.hold) < _MAX_FILES and len(request.drop) < _MAX_FILES:
                return

    async def _send(self, request: pb.RenewLeaseRequest, timeout_s: float) -> None:
        sent_at = self._clock.monotonic()
        reply = await self._call(request, timeout_s)
        self._is_unsure = False
        if reply.lease > self.number:
            if self.number and (self._holders or self._reported):
                _LOG.warning("the lease has expired: files open for writing and locks are lost")
            before, self.number = self.number, reply.lease
            self._reported.clear()  # reported again with the next renewal
            if before:
                self._notify_lost()
        self._reported.update(request.hold)
        self._reported.difference_update(request.drop)
        self._valid_until = self._end_of_reliance(sent_at)

    async def _return(self) -> None:
        self._valid_until = 0.0
        number, self.number = self.number, 0
        await self._call(pb.RenewLeaseRequest(client=self._client, end=number), _CLOSE_TIMEOUT_S)

    async def _call(self, request: pb.RenewLeaseRequest, timeout_s: float) -> pb.RenewLeaseReply:
        """The numbers put the requests in order: one that comes late does nothing any more."""
        self._requests += 1
        request.number = self._requests
        try:
            return await self._renew(request, timeout_s)
        except BaseException:
            self._is_unsure = True
            raise

    async def close(self) -> None:
        """Return the lease, so that other clients need not wait until it expires."""
        await self._background.stop()
        if self.number:
            try:
                await self._return()
            except ThreefsError as error:
                _LOG.info("the lease could not be returned", error=str(error))
