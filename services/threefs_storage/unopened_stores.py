"""Stores of this node that cannot be opened. Their targets serve nothing, and the others of the process go on.

The manager is told so in their place: it waits until their chains have put them out, forgets none of them, and takes
none for one with an empty store.
"""

import contextlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import structlog

from threefs.env.disk import Disk
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError
from threefs.ids import TargetId
from threefs.routing import LocalState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_storage.health.quarantine import has_other_copy
from threefs_storage.opening_rests import OpeningRests

MAX_FAILURE_CHARS = 200  # that a report says of why a target does not serve

_LOG = structlog.get_logger()


class UnopenedStores:
    """By target."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._found: dict[TargetId, tuple[Target, ThreefsError]] = {}
        self._rests = OpeningRests()

    def note(self, target: Target, error: ThreefsError, begun_at: float, ended_at: float) -> None:
        """The store of this target cannot be opened."""
        self._rests.note(target.target_id, begun_at, ended_at)
        _, before = self._found.get(target.target_id, (None, None))
        if str(before) != str(error):
            _LOG.error(
                "the store of a target cannot be opened, so the target serves nothing. A damaged one is replaced when "
                "another member of its chain may have what it has; others are tried again",
                target=target.target_id,
                error=str(error),
            )
        # Without its traceback, which holds the table, and so its lock.
        self._found[target.target_id] = target, type(error)(error.message)

    def discard(self, target_id: TargetId) -> None:
        """It is open now, or unknown."""
        self._found.pop(target_id, None)
        self._rests.discard(target_id)

    def pop_unknown(self, routing: Routing) -> list[TargetId]:
        """Forget those that the routing does not name, and return them."""
        unknown = [target_id for target_id in self._found if target_id not in routing.targets]
        for target_id in unknown:
            self.discard(target_id)
        return unknown

    def __contains__(self, target_id: TargetId) -> bool:
        return target_id in self._found

    def __iter__(self) -> Iterator[TargetId]:
        return iter(self._found)

    @property
    def without_room(self) -> list[Target]:
        return [target for target, error in self._found.values() if isinstance(error, NoSpace)]

    @property
    def errors(self) -> dict[TargetId, ThreefsError]:
        return {target_id: error for target_id, (_, error) in self._found.items()}

    def in_turn(self, targets: Iterable[TargetId]) -> list[TargetId]:
        """Those first that are to be tried first."""
        return self._rests.in_turn(targets)

    def end_rest(self, target_id: TargetId) -> None:
        """It may be opened now."""
        self._rests.discard(target_id)

    def rests(self, target: Target, routing: Routing, now: float) -> bool:
        """Whether it is not tried now. Of a damaged store: if no other member may have what it has, or its target is
        out of service, so that it is not replaced, and to read it again would help nobody."""
        _, error = self._found.get(target.target_id, (None, None))
        if isinstance(error, Corrupt):
            is_replaced = has_other_copy(routing.chains[target.chain_id], target.target_id)
            return not is_replaced or routing.is_out_of_service(target.target_id)
        return self._rests.holds(target.target_id, now)

    def stores(self) -> Iterator[pb.Store]:
        """For the registration: the identities that the manager knows."""
        for target, _ in self._found.values():
            yield pb.Store(target_id=target.target_id, store_id=target.store_id)

    def reports(self, replaced: Container[TargetId]) -> Iterator[pb.TargetReport]:
        """For the heartbeat. They say nothing of what the stores keep, and what room the disk has. `replaced` are those
        whose store has taken the place of a damaged one."""
        disk = pb.TargetReport()
        with contextlib.suppress(DiskFailed):
            space = self._disk.space(self._directory)
            disk = pb.TargetReport(capacity_bytes=space.capacity_bytes, free_bytes=space.free_bytes, disk=space.disk)
        for target_id, (_, error) in self._found.items():
            report = pb.TargetReport(
                target_id=target_id,
                local_state=LocalState.OFFLINE.value,
                read_only=isinstance(error, NoSpace),
                replaces_damaged=target_id in replaced,
                failure=f"its store cannot be opened: {error.message}"[:MAX_FAILURE_CHARS],
            )
            report.MergeFrom(disk)
            yield report
