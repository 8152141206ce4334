"""How a target with a full disk or a damaged table leaves its chain, and how it returns.

When only the reserve of the disk is left, the head gives way to a replica that has room (peer_room.py); if there is
none, the chain refuses writes of clients. A target that has no room even for the writes of its predecessor leaves its
chain, so that the others can go on; so does one that is brought up to date, because every write waits for it, too. The
only serving target of a chain stays, for reads. If all have left at the same time, one returns without room, with its
store as it is. When there is room again, the store of a target that left is opened again, and the target returns like
any other: by resync, or as lastsrv. A target that has not left takes changes again. A disk with a quota may say that it
has room and refuse it, so room is tried first: else the target would return, be synced, refuse and leave for ever.

Chunks that are removed meanwhile would fill the disk for ever: a target hears of no removal outside its chain. So one
that has no room returns now and then as it is, and leaves again if it still finds none. Its resync begins with
removals.

A table with a long log needs more room to be opened again than the ballast has. Without it a target takes no removal,
and cannot return to hear of any. So the log is kept short from before the disk is full: predecessors fill the reserve
in seconds. As long as the disk says that it has room, what a longer log needs is held. Where it refuses that, because
of a quota, the log is kept short as well.

A target without descriptors or memory leaves its chain in the same way, and returns after a while. Its disk has room,
so it gives nothing up; and its store stays open, because to open it takes more descriptors. Only where its table has
met that itself, the table refuses all work until it is opened again.

A damaged table cannot be mended. It goes to quarantine when the store is opened again. A full disk gives up what is in
quarantine: else the new store might never have room for all that the old one had.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.backoff import Backoff
from threefs.env.clock import Clock
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError
from threefs.ids import TargetId
from threefs.routing import PublicState
from threefs_storage.engine.block_files import Space
from threefs_storage.engine.failures import is_exhaustion
from threefs_storage.health.quarantine import has_other_copy
from threefs_storage.target import Target
from threefs_storage.targets import Targets

_INTERVAL_S = 0.5
#: The room that a target needs to return. With less it would leave again at once.
_ROOM_RATIO = 0.01
_ROOM_BYTES = 16 << 20
#: With less room for clients' writes, the log is kept short. It is more than a disk takes between two looks.
_NEARLY_FULL_BYTES = 256 << 20
#: How long a target without room or descriptors is out of its chain before it returns as it is: at first, and at most.
_AWAY = Backoff(20.0, 300.0)
#: The same for one without descriptors, while its chain takes no writes without it.
_AWAY_FROM_WRITES = Backoff(2.0, 20.0)
#: So long writes wait for removals to reach a target that is being brought up to date and has no room. In a chain that
#: is written all the time it would leave at once, with no removal done.
_GRACE_S = 2.0
_ALONE_S = 5.0
_DROP_PAUSE_S = 5.0
_DROP_WAIT_S = 1.0
_IN_WRITE_PATH = (PublicState.SERVING, PublicState.SYNCING)

_LOG = structlog.get_logger()


class TargetRecovery:
    """One task per process. It calls `on_return` with each target that has returned."""

    def __init__(
        self, targets: Targets, *, clock: Clock, report: Callable[[], None], on_return: Callable[[Target], None]
    ) -> None:
        self._targets = targets
        self._clock = clock
        self._report = report
        self._on_return = on_return
        #: By target that has no room, or no descriptors: how often it has returned so, and when it did, or left.
        self._returns: dict[TargetId, tuple[int, float]] = {}
        self._tried_at: dict[TargetId, float] = {}  # when a store was opened again last
        self._drops_at = -math.inf  # when quarantined stores may be deleted next
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("target recovery", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    def on_no_space(self, target: Target) -> None:
        """A write of a predecessor, or a record, found no room."""
        target.full = True
        if self._should_leave(target):
            self._leave(target, "the disk is full")

    def on_exhausted(self, target: Target) -> None:
        """A write of a predecessor found no descriptors or no memory."""
        if self._should_leave(target):
            target.exhausted = True
            self._leave(target, "the process has no descriptors or no memory left")

    def _should_leave(self, target: Target) -> bool:
        """Whether the others of its chain should go on without a target that cannot take a write."""
        if self._clock.monotonic() - target.syncing_since < _GRACE_S and target.state is PublicState.SYNCING:
            return False  # it hears of removals now: the predecessor tries its write again
        return target.state in _IN_WRITE_PATH and len(target.chain.serving) > target.serving and not target.leaving

    def _leave(self, target: Target, why: str) -> None:
        _LOG.warning(f"{why}: the target leaves its chain", target=target.target_id)
        times, since = self._returns.get(target.target_id, (0, math.inf))
        if self._clock.monotonic() >= since + _away_s(target, times):
            del self._returns[target.target_id]  # it has stayed for longer than it would be away
        target.leave()
        self._report()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(_INTERVAL_S)
            for target in list(self._targets):  # moves bring and take targets
                target.engine.notice_failure()  # else only a client's write would meet it
                await self._limit_log(target)
            for target in [target for target in self._targets if target.exhausted]:
                await self._recover_exhausted(target)
            for target in self._full():
                await self._drop_quarantined()
                if self._targets.by_id.get(target.target_id) is not target:
                    continue  # it has moved away meanwhile
                try:
                    await self._recover_full(target)
                except ThreefsError as error:
                    _LOG.info("a full target cannot return yet", target=target.target_id, error=str(error))
                    if isinstance(error, DiskFailed):  # room was tried on it
                        target.engine.fail(error)
            for target in self._without_table():
                try:
                    await self._return(target)
                except ThreefsError as error:
                    _LOG.warning(
                        "a target whose table has failed cannot return yet", target=target.target_id, error=str(error)
                    )
                    if isinstance(error, NoSpace):  # what it had may fill the disk, in quarantine
                        await self._drop_quarantined()

    async def _drop_quarantined(self) -> None:
        """In a task of its own: to delete a large store takes long, and all that is recovered would wait. But most are
        deleted soon, and a target that gets their room need not leave its chain."""
        if self._clock.monotonic() >= self._drops_at:
            self._drops_at = math.inf
            dropping = self._background.run("removal of quarantined stores", self._drop())
            await asyncio.wait([dropping], timeout=_DROP_WAIT_S)

    async def _drop(self) -> None:
        try:
            await self._targets.drop_quarantined()
        except ThreefsError as error:
            _LOG.info("quarantined stores cannot be found", error=str(error))
            if isinstance(error, DiskFailed):
                for target in self._full():
                    target.engine.fail(error, even_closed=True)
        self._drops_at = self._clock.monotonic() + _DROP_PAUSE_S

    async def _limit_log(self, target: Target) -> None:
        try:
            await target.engine.limit_log(is_nearly_full=target.engine.room_bytes < _NEARLY_FULL_BYTES)
        except ThreefsError as error:
            _LOG.info("a log cannot be shortened now", target=target.target_id, error=str(error))

    def _without_table(self) -> Iterable[Target]:
        """Those whose table has failed, though their disk has not, and that are opened again now. Where no other member
        may have what they have, a table that is damaged stays as it is, but it may only have lost what was not durable:
        that is tried seldom."""
        return [target for target in self._targets if self._is_opened_again(target)]

    def _is_opened_again(self, target: Target) -> bool:
        is_damaged = isinstance(target.engine.failure, Corrupt)
        if not is_damaged and not is_exhaustion(target.engine.failure):
            return False
        if is_damaged and has_other_copy(target.chain, target.target_id):
            return not target.is_out_of_service  # else it is not replaced
        if is_damaged or _is_needed_for_reads(target):
            return self._tried_at.get(target.target_id, -math.inf) < self._clock.monotonic() - _ALONE_S
        return self._may_look(target)

    def _full(self) -> Iterable[Target]:
        return [t for t in self._targets if not t.has_failed and (t.full or t.engine.read_only is not None)]

    async def _recover_exhausted(self, target: Target) -> None:
        if target.has_failed or target.full or target.engine.read_only is not None:
            return  # first comes what is wrong with its disk or its table
        if _is_needed_for_reads(target) or self._may_look(target):
            await self._return(target, in_place=True)

    async def _recover_full(self, target: Target) -> None:
        with contextlib.suppress(NoSpace):
            await target.engine.recover()
        space = target.engine.space()
        says_room = space.free_bytes >= max(_ROOM_BYTES, int(space.capacity_bytes * _ROOM_RATIO))
        has_room = says_room and not _must_stay_open(target) and await target.engine.disk_takes(_tried_bytes(space))
        if target.has_failed:
            return  # the disk does not say any more what it has, or another target has met a failure of it
        target.quota_used_up = says_room and not has_room and not target.serving
        if has_room:
            self._returns.pop(target.target_id, None)
        elif not _is_needed_for_reads(target) and not self._may_look(target):
            if target.engine.failure is not None:
                self.on_no_space(target)
            return
        if target.engine.failure is None and not target.leaving:
            target.full = False  # only a write was refused
            return
        target.full = True  # until it has returned: its store may take changes before it has left, or stay closed
        if not target.leaving:
            target.leave()
            self._report()
        await self._return(target, in_place=not has_room and not target.is_closed)

    def _may_look(self, target: Target) -> bool:
        """Whether a target without room was out of its chain for so long that it may ask what was removed, or one
        without descriptors may try whether there are some."""
        now = self._clock.monotonic()
        is_as_it_was = not target.is_closed and target.engine.failure is None
        if target.state is not PublicState.OFFLINE or not (is_as_it_was or is_exhaustion(target.engine.failure)):
            return False
        times, since = self._returns.setdefault(target.target_id, (0, now))
        if now < since + _away_s(target, times):
            return False
        self._returns[target.target_id] = times + 1, now
        return True

    async def _return(self, target: Target, *, in_place: bool = False) -> None:
        """To open a store takes room: more than the ballast has, if its log is long. So one that is needed for reads is
        not closed before there is room, but returns as it is, `in_place`."""
        if target.state is None or target.state in _IN_WRITE_PATH or len(target.locks):
            return  # only when it has left the write path, not the chain, and all changes have ended
        assert not len(target.early), "only a serving target has early versions (P8)"
        assert self._targets.by_id.get(target.target_id) is target, "none goes before its chain goes on without it"
        if in_place:
            self._targets.readmit(target)
        else:
            try:
                await self._targets.reopen(target)
            finally:
                self._tried_at[target.target_id] = self._clock.monotonic()
        if target.state is None:
            return  # its chain has gone on without it meanwhile, and it is being removed
        _LOG.info("the target returns", target=target.target_id)
        self._on_return(target)
        self._report()


def _away_s(target: Target, times: int) -> float:
    """How long a target is away that has returned so often."""
    is_exhausted = target.exhausted or is_exhaustion(target.engine.failure)
    stops_writes = is_exhausted and len(target.chain.serving) < target.min_replicas
    return (_AWAY_FROM_WRITES if stops_writes else _AWAY).limit_s(times)


def _tried_bytes(space: Space) -> int:
    """Not all of what is left beside free blocks: the file system itself needs some of that."""
    return min(_ROOM_BYTES, (space.free_bytes - space.reusable_bytes) // 2)


def _must_stay_open(target: Target) -> bool:
    """Whether no other target of its chain serves, and its table could not be opened again a moment ago: what it says
    of its room is the ballast, or freed blocks whose removal is not durable."""
    if target.is_closed or target.engine.failure is None or len(target.chain.serving) > target.serving:
        return False
    return target.state in (PublicState.SERVING, PublicState.LASTSRV)


def _is_needed_for_reads(target: Target) -> bool:
    """Whether all targets of its chain have left, each because it had no room or no descriptors: one of them has to
    serve, for reads and for removals, which make room again."""
    return target.leaving and target.state is PublicState.LASTSRV and not target.chain.serving
