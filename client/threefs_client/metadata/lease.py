"""The lease of a client at the metadata, under which it holds write sessions, locks, and files open for reading.

The lease is renewed while the client holds anything, and given back when it has held nothing for a while: an idle
client costs nothing. Opening a file for reading sends nothing. A file that stays open for some time is reported with
the next renewal, so that it is kept if it loses its last name. That is soon enough, because a removed file is kept for
the length of a lease in any case.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError, Unavailable
from threefs.leases import RENEWALS_PER_LEASE, client_lease_s
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
        """`timeout_s`: how long an operation waits for the lease."""
        self.number = 0  # as last received; sessions and locks of a lower number are lost
        self.on_lost: list[Callable[[], None]] = []  # callbacks, for when sessions and locks are lost
        self._client = client
        self._renew = renew
        self._lease_s = lease_s  # T of the cluster
        self._timeout_s = timeout_s
        self._clock = clock
        self._valid_until = 0.0  # by the local clock
        self._requests = 0  # of requests
        self._holders = 0  # sessions and locks
        self._read_opens: dict[int, list[float | int]] = {}  # inode -> [since, how often]
        self._reported: set[int] = set()  # held at the meta service
        self._renewal_lock = asyncio.Lock()
        self._background = BackgroundTasks()
        self._renewal_task: asyncio.Task[None] | None = None

    @property
    def duration_s(self) -> float:
        return client_lease_s(self._lease_s())

    # ---- what is held ----

    async def acquire(self) -> None:
        """To be called before a session or lock is requested. Call `release` once when it has ended or was refused."""
        self._holders += 1
        self._start_renewing()
        if self._renewal_lock.locked():  # the old lease may just be given back
            try:
                async with self._renewal_lock:
                    pass
            except BaseException:  # cancelled: nothing will be requested
                self._holders -= 1
                raise
        if not self.number:
            self._valid_until = self._clock.monotonic() + self.duration_s  # the lease begins with this request

    def granted(self, number: int) -> None:
        """The session or lock was granted under the lease of that number."""
        before, self.number = self.number, max(self.number, number)
        if 0 < before < self.number:
            self._notify_lost()

    def _notify_lost(self) -> None:
        for each in self.on_lost:
            each()

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

    @property
    def is_valid(self) -> bool:
        """Whether the lease surely has not expired. If it may have, `revalidate` finds out."""
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
        """Renew the lease even if it is valid: then it surely had not expired when this was called."""
        deadline = self._clock.monotonic() + self._timeout_s
        async with self._renewal_lock:
            self._check_time(deadline)
            await self._renew_all(deadline)

    def _check_time(self, deadline: float) -> None:
        """Others were before this one, and nobody answered them. Raises Unavailable."""
        if self._clock.monotonic() >= deadline:
            raise Unavailable(f"the lease of this process was not confirmed within {self._timeout_s:g} s")

    # ---- renewing ----

    def _start_renewing(self) -> None:
        if self._renewal_task is None or self._renewal_task.done():
            self._renewal_task = self._background.run("keeping of the lease", self._renew_until_idle())

    async def _renew_until_idle(self) -> None:
        while True:
            await self._clock.sleep(self.duration_s / RENEWALS_PER_LEASE)
            try:
                async with self._renewal_lock:
                    if self._is_idle and self.number:
                        await self._give_back()
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
        """Renew, in several calls if many files are to be reported; in none if nothing is held. It tries until the
        deadline, and at least until the next renewal is due."""
        old_enough = self._clock.monotonic() - self.duration_s / RENEWALS_PER_LEASE / 2
        hold = [n for n, (since, _) in self._read_opens.items() if n not in self._reported and since <= old_enough]
        drop = self._reported.difference(self._read_opens)
        if not self._holders and not self._reported and not hold:
            return
        news = iter(hold)
        old = iter(drop)
        while True:
            request = pb.RenewLeaseRequest(
                client=self._client, hold=islice(news, _MAX_FILES), drop=islice(old, _MAX_FILES)
            )
            await self._send(request, max(deadline - self._clock.monotonic(), self.duration_s / RENEWALS_PER_LEASE))
            if len(request.hold) < _MAX_FILES and len(request.drop) < _MAX_FILES:
                return

    async def _send(self, request: pb.RenewLeaseRequest, timeout_s: float) -> None:
        self._requests += 1
        request.number = self._requests
        sent_at = self._clock.monotonic()
        reply = await self._renew(request, timeout_s)
        if reply.lease > self.number:
            if self.number and (self._holders or self._reported):
                _LOG.warning("the lease has expired: files open for writing and locks are lost")
            before, self.number = self.number, reply.lease
            self._reported.clear()  # reported again with the next renewal
            if before:
                self._notify_lost()
        self._reported.update(request.hold)
        self._reported.difference_update(request.drop)
        self._valid_until = sent_at + self.duration_s

    async def _give_back(self) -> None:
        self._valid_until = 0.0
        number, self.number = self.number, 0
        await self._renew(pb.RenewLeaseRequest(client=self._client, end=number), _CLOSE_TIMEOUT_S)

    async def close(self) -> None:
        """Give the lease back, so that other clients need not wait until it expires."""
        await self._background.stop()
        if self.number:
            try:
                await self._give_back()
            except ThreefsError as error:
                _LOG.info("the lease could not be given up", error=str(error))
