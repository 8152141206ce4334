"""Stores on the disk of targets that the routing does not name. They stay as they are, closed.

The routing may be that of a manager that was restored from a backup of before these targets were made, and what the
stores keep of their chains may be newer than what all others keep. So each registration tells the manager of them.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import structlog

from threefs.cluster import kept_routing
from threefs.env.clock import Clock
from threefs.env.disk import Disk
from threefs.errors import Corrupt, ThreefsError
from threefs.ids import ChainId, TargetId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb
from threefs_storage.chain import kept_version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.health import unknown_stores
from threefs_storage.health.quarantine import place_of
from threefs_storage.opening_rests import OpeningRests

_LOG = structlog.get_logger()


class UnnamedStores:
    """By target. One that cannot be read is here without its identity: nobody knows what it keeps."""

    def __init__(
        self, directory: Path, disk: Disk, open_engine: Callable[[Path], Awaitable[ChunkEngine]], clock: Clock
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._open_engine = open_engine
        self._clock = clock
        #: They may come back, repaired. Until then no manager is told of them.
        self.moved_away: set[TargetId] = set()
        self._found: dict[TargetId, pb.Store] = {}
        self._errors: dict[TargetId, ThreefsError] = {}  # why one could not be read
        self._rests = OpeningRests()

    def add(self, store: pb.Store) -> None:
        self._found[TargetId(store.target_id)] = store

    def discard(self, target_id: TargetId) -> None:
        """The routing names it again, or its store is not here any more."""
        self.moved_away.discard(target_id)
        self._found.pop(target_id, None)
        self._errors.pop(target_id, None)
        self._rests.discard(target_id)

    def __contains__(self, target_id: TargetId) -> bool:
        return target_id in self._found

    def __iter__(self) -> Iterator[pb.Store]:
        return iter(self._found.values())

    async def find(self, own: Sequence[TargetId], routing: Routing) -> None:
        """Read the stores of those of these targets that are on the disk and not in the routing."""
        unnamed = [target for target in own if target not in routing.targets]
        names = await self._disk.list_directory(self._directory) if unnamed else ()
        for target in unnamed:
            place = self._place(target)
            if place.name in names:
                self.add(pb.Store(target_id=target))
                await self._read(target)
            elif place_of(place).name not in names:  # else what is there is its quarantined store
                self.moved_away.add(target)

    async def read_again(self, routing: Routing) -> None:
        """Try those again that could not be read: a restored manager waits for what they keep. Nobody repairs a damaged
        one under a process that runs. One that was moved away is waited for no longer, unless its disk was."""
        waiting = self._rests.in_turn(target for target in self._unread if target not in routing.targets)
        with contextlib.suppress(ThreefsError):  # the disk may answer next time
            names = await self._disk.list_directory(self._directory) if waiting else ()
            for target in waiting:
                if self._place(target).name not in names:
                    if kept_routing.NAME in names:
                        _LOG.warning(
                            "a store that could not be read is not on the disk any more, and no restored manager is "
                            "told of it: start this service again if it is put back",
                            target=target,
                        )
                        self.discard(target)
                        self.moved_away.add(target)
                elif not self._rests_now(target) and not isinstance(self._errors.get(target), Corrupt):
                    await self._read(target)

    def _rests_now(self, target: TargetId) -> bool:
        return self._rests.holds(target, self._clock.monotonic())

    async def _present(self, targets: Sequence[TargetId]) -> list[TargetId]:
        """Those that have a directory. Where it is gone, an empty one would be made."""
        names = await self._disk.list_directory(self._directory) if targets else ()
        return [target for target in targets if self._place(target).name in names]

    async def _read(self, target: TargetId) -> None:
        begun_at = self._clock.monotonic()
        try:
            engine = await self._open_engine(self._place(target))
            try:
                self.add(pb.Store(target_id=target, store_id=engine.store_id, kept=kept_version.read(engine)))
            finally:
                await engine.close()
            self._rests.discard(target)
        except ThreefsError as error:
            self._rests.note(target, begun_at, self._clock.monotonic())
            if str(error) != str(self._errors.get(target)):
                _LOG.warning("a store that the routing does not name cannot be read", target=target, error=str(error))
            self._errors[target] = type(error)(error.message)  # without its traceback, which holds the table's lock

    @property
    def _unread(self) -> list[TargetId]:
        return [target for target, store in self._found.items() if not store.store_id]

    @property
    def untold(self) -> list[TargetId]:
        """Those that do not know, or may not know, that their chain goes on without them."""
        return [*self._unread, *(target for target, store in self._found.items() if _names_itself(store))]

    async def tell(self, routing: Routing) -> None:
        """Store in them that their chain goes on without them, as in those that were open. The manager that is restored
        next asks what they know of it, and may know their targets and none that has served since."""
        try:
            present = await self._present([target for target, store in self._found.items() if _names_itself(store)])
        except ThreefsError as error:
            _LOG.warning("stores that the routing does not name cannot be told", error=str(error))
            return
        for target_id in self._rests.in_turn(present):
            store = self._found[target_id]
            chain_id = ChainId(store.kept.chain.chain_id)
            chain = routing.chains.get(chain_id)
            is_newer = chain is not None and chain.version > store.kept.chain.version
            if not is_newer or target_id in routing.targets or self._rests_now(target_id):
                continue
            begun_at = self._clock.monotonic()
            try:
                engine = await self._open_engine(self._place(target_id))
                try:
                    await unknown_stores.mark(engine)
                    await kept_version.save(engine, target_id, chain_id, routing)
                    self.add(pb.Store(target_id=target_id, store_id=engine.store_id, kept=kept_version.load(engine)))
                finally:
                    await engine.close()
                self._rests.discard(target_id)
            except ThreefsError as error:
                self._rests.note(target_id, begun_at, self._clock.monotonic())
                _LOG.warning(
                    "a store that the routing does not name cannot be told", target=target_id, error=str(error)
                )

    def _place(self, target: TargetId) -> Path:
        return self._directory / f"target-{target}"


def _names_itself(store: pb.Store) -> bool:
    """Whether its target is a member in the version of its chain that the store keeps."""
    return any(member.target_id == store.target_id for member in store.kept.chain.members)
