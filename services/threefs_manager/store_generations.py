"""How far the store of each target was seen to be, so that an older copy of it is not taken for it (I15).

A store counts its changes, and a target reports the newest one that is durable. That number only rises. When a target
that served last comes back with a lower one, somebody has put an old copy of its disk in its place: it does not have
all that was acknowledged, and must not serve alone. A target that is filled anew by another one begins again with what
it reports then.

The numbers are kept in memory as heartbeats bring them, and written down when a target becomes lastsrv, and once in T:
after the loss of all power, or of the primary, an old copy is recognised if more than T of changes is missing there.
"""

from collections.abc import Iterable

from threefs.ids import TargetId
from threefs.wire import manager_pb2 as pb


class StoreGenerations:
    """Begun anew with every term as primary, from what was written down."""

    def __init__(self, seen: Iterable[pb.SeenStore] = ()) -> None:
        self._newest = {TargetId(one.target_id): one for one in seen}
        self._unsaved: set[TargetId] = set()

    def on_report(self, report: pb.TargetReport, store_id: int) -> None:
        """A target reports. `store_id` is the store that the cluster knows it by: another one says nothing of that."""
        if report.store_id != store_id:
            return
        known = self._newest.get(TargetId(report.target_id))
        if known is None or known.store_id != store_id or known.generation < report.generation:
            self.reset(report)

    def reset(self, report: pb.TargetReport) -> None:
        """From now on it is measured by what it reports now."""
        target = TargetId(report.target_id)
        self._newest[target] = pb.SeenStore(target_id=target, store_id=report.store_id, generation=report.generation)
        self._unsaved.add(target)

    def newest(self, target: TargetId) -> pb.SeenStore | None:
        return self._newest.get(target)

    def staleness(self, report: pb.TargetReport) -> str:
        """Why the store is an older copy of the one that is known; empty if it is not."""
        known = self._newest.get(TargetId(report.target_id))
        if known is None or known.store_id != report.store_id or known.generation <= report.generation:
            return ""
        return (
            f"its disk is an older copy: it ends with change {report.generation}, and change {known.generation} was "
            "seen before. Put the newest disk in its place"
        )

    def drain_unsaved(self) -> list[pb.SeenStore]:
        """What has changed since the last call."""
        unsaved, self._unsaved = self._unsaved, set()
        return [self._newest[target] for target in sorted(unsaved)]

    def restore_unsaved(self, unsaved: Iterable[pb.SeenStore]) -> None:
        """They could not be saved."""
        self._unsaved.update(TargetId(one.target_id) for one in unsaved)
