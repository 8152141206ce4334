"""What this process holds at the metadata: write sessions, locks, and files that are open for reading.

The lease behind them is renewed while there is any of them, and given up when there is none for a while: an idle client
costs nothing. Opening a file for reading sends nothing. Only files that stay open for some time are reported, together
with the next renewal, so that they are kept if they lose their last name. That is in time: a removed file is kept for
the length of a lease in any case.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.leases import RENEWALS, client_lease_s
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import meta_pb2 as pb

_MOST_FILES = 1024  # in one renewal
_FAREWELL_S = 2.0

_LOG = LibraryLogger(__name__)

Renew = Callable[[pb.RenewLeaseRequest, float], Awaitable[pb.RenewLeaseReply]]


class Lease:
    """Of one client process, on its event loop. `renew` makes the call, in so many seconds at most."""

    def __init__(
        self, client: bytes, renew: Renew, lease_s: Callable[[], float], *, timeout_s: float, clock: Clock
    ) -> None:
        """`timeout_s` is of what an operation waits for."""
        self.number = 0  # as last heard; what is held under a lower one is lost
        self.lapsed: list[Callable[[], None]] = []  # are called when what was held is lost
        self._client = client
        self._renew = renew
        self._lease_s = lease_s  # T of the cluster
        self._timeout_s = timeout_s
        self._clock = clock
        self._until = 0.0  # the lease is certain so long
        self._serial = 0  # of requests
        self._held = 0  # sessions and locks
        self._reading: dict[int, list[float | int]] = {}  # inode -> [since, how often]
        self._reported: set[int] = set()  # held at the meta service
        self._turn = asyncio.Lock()
        self._background = BackgroundTasks()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def length_s(self) -> float:
        return client_lease_s(self._lease_s())

    # ---- what is held ----

    async def enter(self) -> None:
        """Before a session or lock is asked for; then call `leave` once, when it has ended or was not given."""
        self._held += 1
        self._keep()
        if self._turn.locked():  # the old lease may just be given up
            try:
                async with self._turn:
                    pass
            except BaseException:  # cancelled: nothing is asked for
                self._held -= 1
                raise
        if not self.number:
            self._until = self._clock.monotonic() + self.length_s  # it begins with what is asked for now

    def entered(self, number: int) -> None:
        """It was given, under the lease of that number."""
        before, self.number = self.number, max(self.number, number)
        if 0 < before < self.number:
            self._tell()

    def _tell(self) -> None:
        for each in self.lapsed:
            each()

    def leave(self) -> None:
        self._held -= 1

    def reading(self, inode: int) -> None:
        """A file was opened for reading; `read` when it is closed."""
        found = self._reading.get(inode)
        if found is None:
            self._reading[inode] = [self._clock.monotonic(), 1]
            self._keep()
        else:
            found[1] += 1

    def read(self, inode: int) -> None:
        found = self._reading[inode]
        found[1] -= 1
        if not found[1]:
            del self._reading[inode]

    @property
    def certain(self) -> bool:
        """Whether the lease cannot have run out. If not, `confirm` finds out."""
        return self._clock.monotonic() < self._until

    async def confirm(self) -> None:
        """After a silence: what is held may be lost, and then `number` is another one. Raises if nobody answers."""
        deadline = self._clock.monotonic() + self._timeout_s
        if not self.certain:
            async with self._turn:
                if not self.certain:
                    await self._report(deadline)

    async def reconfirm(self) -> None:
        """The same, also if it is certain: afterwards it is known not to have run out before this was called."""
        deadline = self._clock.monotonic() + self._timeout_s
        async with self._turn:
            await self._report(deadline)

    # ---- renewing ----

    def _keep(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = self._background.run("keeping of the lease", self._keep_on())

    async def _keep_on(self) -> None:
        while True:
            await self._clock.sleep(self.length_s / RENEWALS)
            try:
                async with self._turn:
                    if self._idle and self.number:
                        await self._give_up()
                    if self._idle:
                        return
                    await self._report()
            except ThreefsError as error:
                _LOG.info("the lease could not be renewed now", error=str(error))
            except Exception:
                _LOG.exception("the lease could not be renewed")

    @property
    def _idle(self) -> bool:
        return not self._held and not self._reading and not self._reported

    async def _report(self, deadline: float = 0.0) -> None:
        """One renewal, or several if there is much to say; none if nothing has to be held. Until the deadline, and at
        least for as long as the next renewal is away."""
        old_enough = self._clock.monotonic() - self.length_s / RENEWALS / 2
        hold = [n for n, (since, _) in self._reading.items() if n not in self._reported and since <= old_enough]
        drop = self._reported.difference(self._reading)
        if not self._held and not self._reported and not hold:
            return
        news = iter(hold)
        old = iter(drop)
        while True:
            request = pb.RenewLeaseRequest(
                client=self._client, hold=islice(news, _MOST_FILES), drop=islice(old, _MOST_FILES)
            )
            await self._send(request, max(deadline - self._clock.monotonic(), self.length_s / RENEWALS))
            if len(request.hold) < _MOST_FILES and len(request.drop) < _MOST_FILES:
                return

    async def _send(self, request: pb.RenewLeaseRequest, timeout_s: float) -> None:
        self._serial += 1
        request.number = self._serial
        sent_at = self._clock.monotonic()
        reply = await self._renew(request, timeout_s)
        if reply.lease > self.number:
            if self.number and (self._held or self._reported):
                _LOG.warning("the lease has run out meanwhile: what was open for writing or locked is lost")
            before, self.number = self.number, reply.lease
            self._reported.clear()  # to be reported anew, next time
            if before:
                self._tell()
        self._reported.update(request.hold)
        self._reported.difference_update(request.drop)
        self._until = sent_at + self.length_s

    async def _give_up(self) -> None:
        self._until = 0.0
        number, self.number = self.number, 0
        await self._renew(pb.RenewLeaseRequest(client=self._client, end=number), _FAREWELL_S)

    async def close(self) -> None:
        """Let go of everything at once, so that nobody has to wait for the end of the lease."""
        await self._background.stop()
        if self.number:
            try:
                await self._give_up()
            except ThreefsError as error:
                _LOG.info("the lease could not be given up", error=str(error))
