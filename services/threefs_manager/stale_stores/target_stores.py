"""Generations of stores: the newest change that each target's store has reported, so that an older copy is found (I15).

A store counts the changes of its chunks, and a target reports the newest durable one, its generation. It only rises.
When a lastsrv target returns with a lower one, an older copy of its disk is in its place. It does not have everything
that was acknowledged, so it must not serve alone. A target that is filled anew by another one starts again with the
generation that it reports then.

Generations are kept in memory as heartbeats report them, and stored when a target becomes lastsrv and once in T. So
after the loss of all power or of the primary, an older copy is found if it lacks more than T of changes.
"""

from collections.abc import Iterable

from threefs.ids import TargetId
from threefs.routing import PublicState, Routing
from threefs.wire import manager_pb2 as pb


def lost_survivors(unreadable: Iterable[TargetId], routing: Routing) -> set[TargetId]:
    """Of the targets whose records are damaged, those that may have to serve alone: lastsrv ones, and serving ones,
    which are lastsrv when all power was lost. The others are filled anew."""
    members = (
        member.target_id
        for chain in routing.chains.values()
        for member in chain.members
        if member.state in (PublicState.LASTSRV, PublicState.SERVING)
    )
    return set(unreadable).intersection(members)


def seen_in(report: pb.TargetReport) -> pb.SeenStore:
    return pb.SeenStore(target_id=report.target_id, store_id=report.store_id, generation=report.generation)


class StoreGenerations:
    """Of one term as primary; it begins with what is stored."""

    def __init__(self, seen: Iterable[pb.SeenStore] = (), lost: Iterable[TargetId] = ()) -> None:
        """`lost`: those of which it is not known any more what was seen."""
        self._newest = {TargetId(one.target_id): one for one in seen}
        self._lost = set(lost)
        self._unsaved: set[TargetId] = set()

    def on_report(self, report: pb.TargetReport, store_id: int) -> None:
        """Take in a report. `store_id` is the target's known store; reports of another store do not count."""
        if report.store_id != store_id or report.target_id in self._lost:
            return
        known = self._newest.get(TargetId(report.target_id))
        if known is None or known.store_id != store_id or known.generation < report.generation:
            self.reset(report)
        newest = self._newest[TargetId(report.target_id)]
        assert newest.generation >= report.generation, "the generation that is known of a store only rises"

    def on_lease(self, report: pb.TargetReport) -> None:
        """A serving target gets a lease: its process has not ended since it began to serve, so its disk is no copy."""
        if report.target_id in self._lost:
            self.reset(report)

    def reset(self, report: pb.TargetReport) -> None:
        """Start again with the generation of this report, even if it is lower."""
        target = TargetId(report.target_id)
        self._lost.discard(target)
        self._newest[target] = seen_in(report)
        self._unsaved.add(target)

    def newest(self, target: TargetId) -> pb.SeenStore | None:
        return self._newest.get(target)

    def staleness(self, report: pb.TargetReport) -> str:
        """Why the store is an older copy of the one that is known, or may be; empty if it is none."""
        if report.target_id in self._lost:
            return (
                "its disk may be an older copy: the manager's record of its newest change is damaged. If it is the "
                "newest disk, let it serve with `threefs chain accept-loss`"
            )
        known = self._newest.get(TargetId(report.target_id))
        if known is None or known.store_id != report.store_id or known.generation <= report.generation:
            return ""
        return (
            f"its disk is an older copy: its newest change is {report.generation}, and change {known.generation} was "
            "reported before. Put the newest disk in its place"
        )

    def drain_unsaved(self) -> list[pb.SeenStore]:
        """The generations that have changed since the last call, to be stored."""
        unsaved, self._unsaved = self._unsaved, set()
        return [self._newest[target] for target in sorted(unsaved)]

    def restore_unsaved(self, unsaved: Iterable[pb.SeenStore]) -> None:
        """These could not be stored; the next call of `drain_unsaved` returns them again."""
        self._unsaved.update(TargetId(one.target_id) for one in unsaved)
