"""What becomes of a target whose disk is full, or whose table is damaged, and how it comes back.

Where only the reserve is left for clients' writes, the head gives way to a replica that has room (room.py), and the
chain refuses them if there is none. When not even what a predecessor sends finds room, the
target leaves its chain, so that the others can go on; a chain's only serving target stays, for reads. Once there is
room again its store is opened anew, and it returns like any other: by resync, or as the one that served last. One that
has not left takes changes again in its place.

A table that cannot be read from end to end does not get better. It is put aside when the store is opened anew.
"""

import contextlib
from collections.abc import Callable, Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import Corrupt, NoSpace, ThreefsError
from threefs.routing import PublicState
from threefs_storage.health.quarantine import has_other_copy
from threefs_storage.target import Target
from threefs_storage.targets import Targets

_LOOK_S = 0.5
#: Room that must be free before a target comes back: else it would leave again at once.
_ROOM_RATIO = 0.01
_ROOM_BYTES = 16 << 20

_LOG = structlog.get_logger()


class TargetRecovery:
    """One task per process. `began` is told of each target that is back."""

    def __init__(
        self, targets: Targets, *, clock: Clock, report: Callable[[], None], began: Callable[[Target], None]
    ) -> None:
        self._targets = targets
        self._clock = clock
        self._report = report
        self._on_return = began
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("revival", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    def on_no_space(self, target: Target) -> None:
        """There was no room for what a predecessor sent, or for a record."""
        target.full = True
        if len(target.chain.serving) > 1 and target.serving and not target.leaving:
            _LOG.warning("the disk is full: the target leaves its chain", target=target.target_id)
            target.leave()
            self._report()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            for target in self._full():
                try:
                    await self._recover_full(target)
                except ThreefsError as error:
                    _LOG.info("a full target cannot come back yet", target=target.target_id, error=str(error))
            for target in self._damaged():
                try:
                    await self._reopen(target)
                except ThreefsError as error:
                    _LOG.warning("a damaged target cannot come back yet", target=target.target_id, error=str(error))

    def _damaged(self) -> Iterable[Target]:
        return [
            t for t in self._targets if isinstance(t.engine.failure, Corrupt) and has_other_copy(t.chain, t.target_id)
        ]

    def _full(self) -> Iterable[Target]:
        return [t for t in self._targets if not t.has_failed and (t.full or t.engine.read_only is not None)]

    async def _recover_full(self, target: Target) -> None:
        with contextlib.suppress(NoSpace):
            await target.engine.recover()
        space = target.engine.space()
        if space.free_bytes < max(_ROOM_BYTES, int(space.capacity_bytes * _ROOM_RATIO)):
            if target.engine.failure is not None:
                self.on_no_space(target)
            return
        if target.engine.failure is None and not target.leaving:
            target.full = False  # only a write was refused
            return
        if not target.leaving:
            target.leave()
            self._report()
        await self._reopen(target)

    async def _reopen(self, target: Target) -> None:
        if target.state in (PublicState.SERVING, PublicState.SYNCING) or len(target.locks):
            return  # not before the chain says that it is out, and everything under way has ended
        await self._targets.reopen(target)
        _LOG.info("the target returns", target=target.target_id)
        self._on_return(target)
        self._report()
