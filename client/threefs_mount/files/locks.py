"""flock(2) and fcntl(2) locks of programs on the mount, kept at the meta service.

So other mounts see them, and they end with the lease of this process. A locked file is synced before it is unlocked, so
the next holder reads what was written under the lock.
"""

import asyncio
import contextlib
import fcntl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import structlog
from threefs_client.context import ClientContext
from threefs_client.metadata.locks import END, LockOwner
from threefs_fuse.requests import Lock

from threefs.backoff import Backoff
from threefs.env.shielded_wait import shielded
from threefs.errors import InvalidArgument, Locked
from threefs.wire import meta_pb2 as pb

#: The kernel's end of a range that reaches to the end of the file.
_KERNEL_END = (1 << 63) - 1
_BACKOFF = Backoff(0.002, 0.25)
#: How long a lock without a wait waits for the ends of files that are closed already. They store what was written, for
#: which a chain may keep them much longer, and the kernel lets no signal end such a request.
_ENDS_S = 1.0
_EXCLUSIVE = {fcntl.F_RDLCK: False, fcntl.F_WRLCK: True}
_KERNEL_TYPES = {pb.SHARED: fcntl.F_RDLCK, pb.EXCLUSIVE: fcntl.F_WRLCK}

_LOG = structlog.get_logger()

Key = tuple[int, "pb.LockKind", int]  # inode, kind, owner


class _Owner:
    """An owner of locks. Its threads make one call at a time, and do not hold `lock` while they wait for a lock."""

    def __init__(self, locks: LockOwner) -> None:
        self.locks = locks
        self.lock = asyncio.Lock()
        self.users = 0
        self.ends = 0  # open files that are being closed, with its locks


class FileLocks:
    def __init__(
        self,
        context: ClientContext,
        on_locked: Callable[[int], Awaitable[None]],
        on_lost: Callable[[int], None] = lambda inode: None,
    ) -> None:
        """`on_locked` gets an inode on which a lock was granted, before the program gets the lock: cached content of
        the file may be old. `on_lost` gets an inode whose locks were lost with the lease."""
        self._context = context
        self._on_locked = on_locked
        self._on_lost = on_lost
        context.lease.on_lost.append(self._on_lease_lost)
        self._owners: dict[Key, _Owner] = {}
        self._record_owners: dict[int, set[int]] = {}  # handle -> owners of record locks that were acquired through it
        self._waiting: dict[int, list[asyncio.Event]] = {}  # inode -> calls that wait for an unlock
        self._ending: dict[int, set[asyncio.Event]] = {}  # inode -> open files that are being closed, with their locks

    def _owner(self, key: Key, pid: int) -> _Owner:
        found = self._owners.get(key)
        if found is None:
            inode, kind, owner = key
            found = self._owners[key] = _Owner(LockOwner(self._context, inode, owner, kind=kind, pid=pid))
        return found

    def _forget_unused(self, key: Key, owner: _Owner) -> None:
        owner.users -= 1
        self._forget_if_unused(key, owner)

    def _forget_if_unused(self, key: Key, owner: _Owner) -> None:
        """Not while it is being unlocked, or a wait of it is ended: the next lock of the same owner must come behind
        that."""
        if owner.users or self._owners.get(key) is not owner:
            return
        if running := owner.locks.in_background:
            running[0].add_done_callback(lambda _: self._forget_if_unused(key, owner))
        elif not owner.locks.may_hold:
            del self._owners[key]

    def _on_lease_lost(self) -> None:
        lost = [key for key, owner in self._owners.items() if owner.locks.is_lost]
        for key in lost:
            owner = self._owners[key]
            owner.locks.mark_lost()
            self._forget_if_unused(key, owner)
        for inode in {inode for inode, _, _ in lost}:
            _LOG.warning("locks were lost with the lease", inode=inode)
            self._on_lost(inode)

    # ---- locking ----

    async def acquire(
        self, inode: int, owner: int, lock: Lock, *, flock: bool, wait: bool, handle: int | None = None
    ) -> None:
        """Acquire a lock. `handle` is the open file through which the program asks.

        Raises Locked, unless it may wait; Deadlock; and what `on_locked` raises, after which the lock is held until the
        file is closed. A cancelled call leaves the locks as they were before.
        """
        if lock.type not in _EXCLUSIVE:
            raise InvalidArgument(f"a lock has the type F_RDLCK or F_WRLCK, not {lock.type}")
        key = (inode, _kind(flock), owner)
        found = self._owner(key, lock.pid)
        found.users += 1
        try:
            attempts = 0
            # To programs they are closed already: close(2) does not wait for the end of locks of an open file.
            ending = () if wait else tuple(self._ending.get(inode, ()))
            while not await self._uncancelled(self._try(found, lock, wait)):
                if ending:
                    await _wait_for_ends(ending)
                    ending = ()
                elif wait:
                    await self._wait_for_unlock(inode, _BACKOFF.pause_s(attempts, self._context.random))
                    attempts += 1
                else:
                    raise Locked(f"inode {inode} is locked by another owner")
            if handle is not None and not flock:
                self._record_owners.setdefault(handle, set()).add(owner)
            await self._uncancelled(self._notify_locked(inode))
        except BaseException:
            found.locks.cancel_wait_soon()
            raise
        finally:
            self._forget_unused(key, found)

    async def _notify_locked(self, inode: int) -> bool:
        await self._on_locked(inode)
        return True

    async def _try(self, owner: _Owner, lock: Lock, wait: bool) -> bool:
        if owner.ends:  # `owner.lock` is held until the files are closed, and nothing cancels this call
            return False
        start, end = _range(lock)
        async with owner.lock:
            try:
                await owner.locks.acquire(
                    exclusive=_EXCLUSIVE[lock.type], start=start, end=end, wait_s=0, will_retry=wait
                )
            except Locked:
                return False
        return True

    async def _uncancelled(self, work: Coroutine[Any, Any, bool]) -> bool:
        """Wait for a call that was sent even if this task is cancelled, because the lock may have been granted."""
        attempt = asyncio.ensure_future(work)
        try:
            return await shielded(attempt)
        except asyncio.CancelledError:
            if await attempt:
                return True
            raise

    async def _wait_for_unlock(self, inode: int, pause_s: float) -> None:
        """Wait until a program on this mount unlocks a part of the file, at most `pause_s`: unlocks on other mounts are
        found by polling."""
        unlocked = asyncio.Event()
        self._waiting.setdefault(inode, []).append(unlocked)
        try:
            async with asyncio.timeout(pause_s):
                await unlocked.wait()
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting[inode]
            waiting.remove(unlocked)
            if not waiting:
                del self._waiting[inode]

    # ---- unlocking ----

    def holds(self, inode: int, owner: int, *, flock: bool) -> bool:
        """Whether it may have a lock, or get one for which it asks now."""
        found = self._owners.get((inode, _kind(flock), owner))
        return found is not None and not found.ends  # else this is the next owner of the number

    def closing_descriptor(self, inode: int, handle: int, owner: int) -> bool:
        """A process closes a descriptor. Returns whether it has record locks on the file, which end with that."""
        self._record_owners.get(handle, set()).discard(owner)
        return self.holds(inode, owner, flock=False)

    def closing_handle(self, handle: int, *, flock: bool) -> bool:
        """The last descriptor of an open file is closed. Returns whether locks may end with it."""
        if not self._record_owners.get(handle, True):
            del self._record_owners[handle]
        return flock or handle in self._record_owners

    async def end_handle(
        self, inode: int, handle: int, owner: int, *, flock: bool, close: Callable[[], Awaitable[object]]
    ) -> None:
        """Close the open file, then end the locks of the open file itself: flock(2) locks, and fcntl(2) locks that no
        process owns. These owners get no lock before that: the kernel may have given their numbers to the next open
        files."""
        keys: list[Key] = [(inode, pb.RECORD_LOCK, one) for one in sorted(self._record_owners.pop(handle, ()))]
        if flock:
            keys.append((inode, pb.FLOCK, owner))
        ending = {key: self._owners[key] for key in keys if key in self._owners}
        for found in ending.values():
            found.users += 1
            found.ends += 1
        ended = asyncio.Event()
        self._ending.setdefault(inode, set()).add(ended)
        try:
            async with contextlib.AsyncExitStack() as locked:
                for found in ending.values():
                    await locked.enter_async_context(found.lock)
                try:
                    await close()
                finally:
                    for found in ending.values():
                        await found.locks.release_all()
        finally:
            ended.set()
            self._ending[inode].discard(ended)
            if not self._ending[inode]:
                del self._ending[inode]
            for key, found in ending.items():
                found.ends -= 1
                self._unlocked(key, found)

    async def unlock(self, inode: int, owner: int, lock: Lock, *, flock: bool) -> None:
        start, end = _range(lock)
        await self._release((inode, _kind(flock), owner), lambda locks: locks.release(start, end))

    async def unlock_all(self, inode: int, owner: int, *, flock: bool) -> None:
        """Its owner closes the file: unlocked in the background, if no service answers now."""
        await self._release((inode, _kind(flock), owner), LockOwner.release_all)

    async def _release(self, key: Key, release: Callable[[LockOwner], Awaitable[None]]) -> None:
        found = self._owners.get(key)
        if found is None or found.ends:  # this is the next owner of the number, and has got no lock yet
            return
        found.users += 1
        try:
            async with found.lock:
                await release(found.locks)
        finally:
            self._unlocked(key, found)

    def _unlocked(self, key: Key, owner: _Owner) -> None:
        self._forget_unused(key, owner)
        for unlocked in self._waiting.get(key[0], ()):
            unlocked.set()

    # ---- testing ----

    async def conflict(self, inode: int, owner: int, lock: Lock, *, flock: bool) -> Lock:
        """A lock of another owner that conflicts; of the type F_UNLCK if there is none."""
        if lock.type not in _EXCLUSIVE:
            raise InvalidArgument(f"a lock has the type F_RDLCK or F_WRLCK, not {lock.type}")
        start, end = _range(lock)
        locks = LockOwner(self._context, inode, owner, kind=_kind(flock))
        found = await locks.conflict(exclusive=_EXCLUSIVE[lock.type], start=start, end=end)
        if found is None:
            return Lock(lock.start, lock.end, fcntl.F_UNLCK, 0)
        return Lock(found.start, min(found.end, _KERNEL_END), _KERNEL_TYPES[found.type], found.pid)


async def _wait_for_ends(ending: Iterable[asyncio.Event]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_S):
            for ended in ending:
                await ended.wait()


def _kind(flock: bool) -> "pb.LockKind":
    return pb.FLOCK if flock else pb.RECORD_LOCK


def _range(lock: Lock) -> tuple[int, int]:
    return lock.start, END if lock.end >= _KERNEL_END else lock.end
