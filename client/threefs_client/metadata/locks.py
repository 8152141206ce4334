"""Advisory locks on files, which all clients of the cluster see. A lock ends at the latest with the lease of its
client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from threefs.backoff import Backoff
from threefs.errors import Locked, OutcomeUnknown, Retry, ThreefsError, Unavailable
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.context import ClientContext

END = (1 << 64) - 1  # of a range: to the end of the file, wherever that will be
_BACKOFF = Backoff(0.005, 0.25)
#: Between the attempts of an unlock in the background, each of which waits for an answer itself.
_UNLOCK_PAUSE_S = 1.0
_MOST_LEASES = 3  # that end while one lock is asked for


class LockOwner:
    """The locks of one owner on one file. An owner is an open file (flock locks) or a process (record locks).

    For one task at a time. The owners of one client have different numbers.
    """

    def __init__(
        self,
        context: ClientContext,
        inode: int,
        owner: int,
        *,
        kind: pb.LockKind = pb.FLOCK,
        pid: int = 0,
        name: str = "",
    ) -> None:
        """`name` is the name of the file for error messages."""
        self._name = name
        self._context = context
        self._inode = inode
        self._owner = owner
        self._kind = kind
        self._pid = pid
        self._ranges = 0  # locked ranges
        self._has_lease = False  # this owner counts as a holder of the lease
        self._entering = asyncio.Lock()  # while it becomes one
        self._users = 0  # requests that need the lease, beside the locks
        self._calls = 0  # that are under way
        #: One request after the other: an older answer that came later would say that locks are held which are not.
        self._turn = asyncio.Lock()
        self._grants = 0  # locks that were granted
        self._ended_grants = 0  # of these, the ones before the owner last had no locks
        self._relied_on = 0  # of the others, the ones that were not given back
        self._unlocking: set[asyncio.Task[None]] = set()
        self._cancelling: asyncio.Task[None] | None = None
        self._is_queued = False  # the meta service has a record of the wait
        #: By number, the requests that nobody has answered: a service that hangs may still carry them out.
        self._unsettled: dict[int, Any] = {}
        self._lease = 0  # the number of the lease of the locks
        self._is_lost = False

    @property
    def _shown(self) -> str:
        return self._name or f"inode {self._inode}"

    @property
    def is_held(self) -> bool:
        return self._ranges > 0

    @property
    def may_hold(self) -> bool:
        """Whether it has locks, or may get some yet from a service that hangs."""
        return self._ranges > 0 or bool(self._unsettled)

    @property
    def unlocking(self) -> "asyncio.Task[None] | None":
        """An unlock in the background, as long as it goes on."""
        return next(iter(self._unlocking), None)

    @property
    def in_background(self) -> "list[asyncio.Task[None]]":
        """The unlocks and the end of a wait in the background, as long as they go on."""
        cancelling = self._cancelling
        return [*self._unlocking, *([] if cancelling is None or cancelling.done() else [cancelling])]

    @property
    def is_lost(self) -> bool:
        """The lease expired under the lock, so another client may have had it since."""
        return self._is_lost or (self._ranges > 0 and self._lease < self._context.lease.number)

    def mark_lost(self) -> None:
        """Forget the locks: they are lost, and no unlock is sent for them. A call that is under way may get a new one,
        which needs the lease, and is unlocked as any other."""
        self._ranges = 0
        if not self._calls:
            self._release_lease()

    async def acquire(
        self, *, exclusive: bool, start: int = 0, end: int = END, wait_s: float | None = None, will_retry: bool = False
    ) -> int:
        """Lock the bytes from `start` to `end`, inclusive. It replaces the owner's locks on these bytes.

        It waits for locks of others, at most `wait_s` seconds if given, and raises Locked after that. A call that is
        cancelled or fails leaves the locks that the owner had before. Raises Deadlock for a record lock whose holder
        waits for this owner. A caller that waits by itself sets `will_retry`, and calls `cancel_wait` if it gives up.

        Returns the number of the grant, for `give_back`.
        """
        try:
            return await self._acquire(exclusive, start, end, wait_s, will_retry)
        except Locked:
            if not will_retry:
                await self.cancel_wait()
            raise
        except BaseException:
            self.cancel_wait_soon()
            raise

    async def cancel_wait(self) -> None:
        """Remove the record of the wait from the meta service."""
        if self._is_queued:
            self._is_queued = False
            async with self._with_lease():
                await self._send(self._lock(pb.UNLOCK, 0, END), end_wait=True)

    def cancel_wait_soon(self) -> None:
        """The same, in the background. If it fails, the record of the wait expires soon."""

        async def cancel() -> None:
            with contextlib.suppress(ThreefsError):
                await self.cancel_wait()

        if self._is_queued:
            self._cancelling = asyncio.ensure_future(cancel())

    async def _acquire(self, exclusive: bool, start: int, end: int, wait_s: float | None, will_retry: bool) -> int:
        await self._finish_background()
        lock = self._lock(pb.EXCLUSIVE if exclusive else pb.SHARED, start, end)
        wait = self._kind == pb.RECORD_LOCK and (will_retry or wait_s is None or wait_s > 0)
        deadline = None if wait_s is None else self._context.clock.monotonic() + wait_s
        attempts = 0
        async with self._with_lease():
            while True:
                try:
                    return await self._send(lock, wait=wait)
                except Locked:
                    if deadline is not None and self._context.clock.monotonic() >= deadline:
                        raise
                except BaseException as error:
                    self._acquire_failed(error, start, end)
                    raise
                await self._context.clock.sleep(_BACKOFF.pause_s(attempts, self._context.random))
                attempts += 1

    def _acquire_failed(self, error: BaseException, start: int, end: int) -> None:
        """The lock may have been granted. Of an owner that had locks nothing is unlocked: it relies on them, and one
        that is now exclusive, or longer, ends with them."""
        if not self._ranges and (not isinstance(error, ThreefsError) or error.retry is Retry.UNKNOWN):
            self._unlock_soon(start, end)

    async def release(self, start: int = 0, end: int = END) -> None:
        """Unlock; bytes that are not locked are no error."""
        await self._finish_background()
        if self._has_lease or self.may_hold:
            try:
                await self._send(self._lock(pb.UNLOCK, start, end))
            finally:
                self._release_lease()

    async def release_all(self) -> None:
        """Unlock the whole file, which its owner closes: in the background, if no service answers now."""
        try:
            await self.release()
        except BaseException as error:
            if self.unlocking is None:
                self.unlock_soon()
            if not isinstance(error, ThreefsError):
                raise

    def give_back(self, grant: int) -> None:
        """Who got this lock has no use for it. The whole file is unlocked in the background, unless another task relies
        on a lock of this owner."""
        if grant > self._ended_grants:
            self._relied_on -= 1
            if not self._relied_on:
                self.unlock_soon()

    def unlock_soon(self) -> None:
        """Unlock the whole file in the background."""
        self._unlock_soon(0, END)

    async def _finish_background(self) -> None:
        """Wait until earlier unlocks in the background have ended: they must not remove the lock that is requested now.
        Cancelling this wait does not cancel them. Raises Unavailable."""
        if running := self.in_background:
            timeout_s = self._context.options.timeout_s
            _, pending = await asyncio.wait(running, timeout=timeout_s)
            if pending:
                raise Unavailable(
                    f"no meta service has confirmed within {timeout_s:g} s (option timeout_s) that an earlier lock on "
                    f"{self._shown} was released; try again"
                )

    async def conflict(self, *, exclusive: bool, start: int = 0, end: int = END) -> pb.FileLock | None:
        """A lock of another owner that conflicts. Its owner and pid are 0 if it belongs to another client."""
        lock = self._lock(pb.EXCLUSIVE if exclusive else pb.SHARED, start, end)
        request = pb.QueryLockRequest(client=bytes(self._context.client), inode=self._inode, lock=lock)
        reply = await self._context.meta.call(methods.QUERY_LOCK, request, timeout_s=self._context.options.timeout_s)
        if not reply.HasField("conflict"):
            return None
        if not reply.same_client:
            reply.conflict.owner = reply.conflict.pid = 0
        return reply.conflict

    def _lock(self, kind: pb.LockType, start: int, end: int) -> pb.FileLock:
        return pb.FileLock(kind=self._kind, type=kind, owner=self._owner, start=start, end=end, pid=self._pid)

    async def _send(
        self, lock: pb.FileLock, *, wait: bool = False, end_wait: bool = False, if_grants: int | None = None
    ) -> int:
        """With `if_grants`, only if no more locks than these were granted before its turn came. Returns how many were
        granted then."""
        async with self._turn:
            if if_grants is not None and if_grants != self._grants:
                return self._grants
            for _ in range(_MOST_LEASES):
                await self._settle()
                blocked = await self._request(lock, wait, end_wait)
                if blocked or lock.type == pb.UNLOCK or self._ranges:
                    break  # else it was granted under a lease that had ended when the answer came
            else:
                raise Unavailable(f"leases of this client end before it can use a lock on {self._shown}; try again")
            if not blocked and lock.type != pb.UNLOCK:
                self._grants += 1
                self._relied_on += 1
            grants = self._grants
        if blocked:
            raise Locked(f"{self._shown} is locked by another owner")
        if wait:
            self._is_queued = False  # the lock was granted
        return grants

    async def _request(self, lock: pb.FileLock, wait: bool, end_wait: bool) -> bool:
        request: Any = pb.LockRequest(
            mutation=self._context.meta.mutation(), inode=self._inode, lock=lock, wait=wait, end_wait=end_wait
        )
        try:
            return await self._call(request)
        except BaseException as error:
            if not isinstance(error, ThreefsError) or error.retry is Retry.UNKNOWN:
                self._unsettled[request.mutation.request] = request
            raise

    async def _settle(self) -> None:
        """Repeat what was not answered, so that it was made, or never will be. An unlock that came late would take the
        lock that is asked for now, and a lock that came after its unlock would stay."""
        for number, request in list(self._unsettled.items()):
            request.mutation.again = True
            try:
                await self._call(request)
            except ThreefsError as error:
                if error.retry is not Retry.NEVER:
                    raise
            self._unsettled.pop(number, None)

    async def _call(self, request: Any) -> bool:
        """Whether the meta service has a record that the owner waits."""
        self._calls += 1
        try:
            reply = await self._context.meta.call(methods.LOCK, request, timeout_s=self._context.options.timeout_s)
            if reply.lease:
                self._is_lost = self.is_lost or (self._ranges > 0 and self._lease < reply.lease)
                self._lease = reply.lease
                self._context.lease.granted(reply.lease)
            elif self._ranges:
                await self._revalidate_lease()
        except ThreefsError as error:
            raise paths.with_file_name(error, self._inode, self._name) from None
        finally:
            self._calls -= 1
        # The first answer to a repeated request is that of before: its lease may have ended since, with its locks.
        self._ranges = reply.held if reply.lease >= self._context.lease.number else 0
        if not self._ranges:
            self._ended_grants, self._relied_on = self._grants, 0
        self._is_queued = self._is_queued or reply.blocked
        return bool(reply.blocked)

    async def _revalidate_lease(self) -> None:
        """The service knows no locks of this client: they were unlocked, or lost with a lease that nobody has asked for
        since. Whoever is told of lost locks must hear of these before they are forgotten. Raises OutcomeUnknown."""
        try:
            await self._context.lease.revalidate()
        except ThreefsError as error:
            raise OutcomeUnknown(f"whether a lock on {self._shown} was lost is not known: {error.message}") from None

    @contextlib.asynccontextmanager
    async def _with_lease(self) -> AsyncIterator[None]:
        """The owner is a holder of the lease within the block, and stays one if it has locks then."""
        self._users += 1
        try:
            async with self._entering:
                if not self._has_lease:
                    await self._context.lease.acquire()
                    self._has_lease = True
            yield
        finally:
            self._users -= 1
            self._release_lease()

    def _release_lease(self) -> None:
        if self._has_lease and not self._ranges and not self._users:
            self._has_lease = False
            self._context.lease.release()

    def _unlock_soon(self, start: int, end: int) -> None:
        """Unlock in the background, until it is confirmed: the lease, which would end the lock, may be needed for other
        things for ever."""

        grants = self._grants

        async def unlock() -> None:
            try:
                await self._unlock_until_confirmed(start, end, grants)
            finally:
                self._users -= 1
                self._release_lease()

        self._users += 1
        task = self._context.background.run("unlock of a file", unlock())
        self._unlocking.add(task)
        task.add_done_callback(self._unlocking.discard)

    async def _unlock_until_confirmed(self, start: int, end: int, grants: int) -> None:
        """Unless another task of the owner gets a lock meanwhile, which relies on it."""
        while True:
            try:
                await self._send(self._lock(pb.UNLOCK, start, end), if_grants=grants)
                return
            except ThreefsError as error:
                if error.retry is Retry.NEVER:
                    return
            await self._context.clock.sleep(_UNLOCK_PAUSE_S)
