"""Bugs on purpose: each takes one rule of the protocol away, and the simulator must notice.

They are made by changing the classes of the program inside a simulation's own process. Nothing in the program knows of
them, so no production build can reach them. `hunt.py` tries seeds until each one is caught.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any

from threefs_manager import service as service_module
from threefs_manager import transitions
from threefs_manager.election import Election, Epoch
from threefs_manager.membership import Membership
from threefs_manager.overseer import Overseer
from threefs_storage.craq import Craq, Result
from threefs_storage.engine import committer as committer_module
from threefs_storage.engine import reader as reader_module
from threefs_storage.engine.records import Record
from threefs_storage.engine.store import RecordStore
from threefs_storage.finisher import Finisher
from threefs_storage.forwarding import Successor
from threefs_storage.last_target import LastTarget
from threefs_storage.repair import Repair
from threefs_storage.resync import Resync
from threefs_storage.targets import Target, Targets

from threefs.errors import ThreefsError
from threefs.routing import LocalState, PublicState

Plant = Callable[[], None]
PLANTED: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    PLANTED[function.__name__] = function
    return function


def put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


# ---- durability


@plant
def record_not_flushed() -> None:
    """The record of a pending version is not synced before it is forwarded."""

    async def flush(self: RecordStore, number: int | None = None) -> None:
        await asyncio.sleep(0)

    put(RecordStore, "flush", flush)


@plant
def data_not_synced() -> None:
    """The record is durable, the bytes that it names are not."""

    async def sync(items: list[Any]) -> Exception | None:
        for item in items:
            for offset, parts in item.writes:
                await item.file.write(offset, parts)
        return None

    put(committer_module, "_sync", sync)


# ---- replication


@plant
def commit_before_successor() -> None:
    """The head answers, and commits, without waiting for its successor."""
    forward = Successor.forward

    async def hasty(self: Successor, target: Target, successor: Any, chunk: Any, pending: Any, *rest: Any) -> Any:
        _GOING_ON.append(asyncio.ensure_future(_quiet(forward(self, target, successor, chunk, pending, *rest))))
        return Result(pending.version, pending.length, pending.checksum)

    put(Successor, "forward", hasty)


async def _quiet(work: Any) -> None:
    with contextlib.suppress(ThreefsError):
        await work


_GOING_ON: list[Any] = []


@plant
def failed_forward_is_taken_for_done() -> None:
    forward = Successor.forward

    async def careless(self: Successor, target: Target, successor: Any, chunk: Any, pending: Any, *rest: Any) -> Any:
        try:
            return await forward(self, target, successor, chunk, pending, *rest)
        except ThreefsError:
            return Result(pending.version, pending.length, pending.checksum)

    put(Successor, "forward", careless)


@plant
def chain_version_ignored() -> None:
    """R3, I5: requests of any chain version are served."""
    check = Target.check

    def lax(self: Target, chain_version: int, *, syncing: bool = False) -> None:
        check(self, self.chain.version, syncing=syncing)

    put(Target, "check", lax)


@plant
def lease_ignored() -> None:
    """R1, R2, I5: a target serves whether it holds a lease or not."""

    def open_grant(self: Targets) -> Any:
        def grant(targets: Any, until: float) -> None:
            for target in self:
                target.leased_until = math.inf

        return grant

    put(Targets, "open_grant", open_grant)


@plant
def identity_forgotten() -> None:
    """I6: a repeated write is applied again."""
    put(Record, "entry", lambda self, client, channel: None)


@plant
def entries_not_shipped() -> None:
    """R6: a whole chunk travels without the results of its writes."""
    ship = Successor.ship

    async def bare(
        self: Successor, target: Any, successor: Any, chunk: Any, version: Any, entries: Any, *rest: Any
    ) -> Any:
        return await ship(self, target, successor, chunk, version, (), *rest)

    put(Successor, "ship", bare)


@plant
def pending_not_finished_before_read() -> None:
    """After a chain change the tail answers with the old version, though the one before it has shown the new one."""

    class All(set):  # type: ignore[type-arg]
        def __contains__(self, chunk: object) -> bool:
            return True

    init = Target.__init__

    def with_all(self: Target, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self.current = All()

    put(Target, "__init__", with_all)


@plant
def tail_not_asked() -> None:
    """A replica with a pending version answers with its committed one."""

    async def never(self: LastTarget, target: Target, chunk: Any, deadline: float) -> int:
        return 0

    put(LastTarget, "committed_version", never)


@plant
def pending_shown_early() -> None:
    """A replica answers with its pending version, whether it is committed at the tail or not."""

    async def newest(self: LastTarget, target: Target, chunk: Any, deadline: float) -> int:
        record = target.engine.record(chunk)
        return record.pending.version if record is not None and record.pending is not None else 0

    put(LastTarget, "committed_version", newest)


@plant
def syncing_keeps_pending() -> None:
    """R5: what was pending before survives the beginning of a resync."""
    put(Target, "drop_outdated", lambda self, chunk: True)
    put(Target, "all_dropped", lambda self: True)


@plant
def finisher_off() -> None:
    """What a crash or a client that gave up has left pending stays so."""
    put(Finisher, "begin", lambda self, target: target.finished.set())


@plant
def older_pending_dropped() -> None:
    """A write does not finish the pending version before it, but takes its place."""
    from_client = Craq._from_client

    async def dropping(self: Craq, target: Target, chunk: Any, *rest: Any) -> Any:
        record = target.engine.record(chunk)
        if record is not None and record.pending is not None:
            target.engine.drop_pending(chunk)
        return await from_client(self, target, chunk, *rest)

    put(Craq, "_from_client", dropping)


@plant
def checksums_not_checked() -> None:
    """I12: bytes are served as they lie on the disk."""
    put(reader_module, "expected_checksum", lambda version, begin, end: _ANY)


class _Any(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


_ANY = _Any(0)


@plant
def nothing_is_repaired() -> None:
    put(Repair, "begin", lambda self, target: None)


# ---- resync


@plant
def promoted_too_early() -> None:
    """I7: a syncing target says at once that nothing is missing."""
    state = Target.local_state.fget  # type: ignore[attr-defined]
    put(Target, "local_state", property(lambda self: max(state(self), 1) if self.left else LocalState.UPTODATE))


@plant
def resync_ships_nothing() -> None:
    async def ship(self: Resync, target: Any, chunk: Any, chain_version: int) -> bool:
        return True

    put(Resync, "_ship", ship)


@plant
def parts_sent_to_syncing() -> None:
    """R4: a syncing target takes a part of a chunk on top of whatever it holds."""
    kinds = Craq._forwarded

    async def forwarded(
        self: Craq, target: Target, chunk: Any, write: Any, identity: Any, payload: Any, end: Any
    ) -> Any:
        before, target.serving = target.serving, True
        try:
            return await kinds(self, target, chunk, write, identity, payload, end)
        finally:
            target.serving = before

    put(Craq, "_forwarded", forwarded)


# ---- membership


@plant
def anyone_returns() -> None:
    """R7: when nothing serves, any target that returns serves alone."""

    def returns(states: Any, members: Any, known: Any) -> None:
        if PublicState.SERVING not in states.values():
            for member in members:
                if transitions._lives(member.target_id, known):
                    states[member.target_id] = PublicState.SERVING
                    return

    put(transitions, "_return_lastsrv", returns)


@plant
def only_one_lastsrv() -> None:
    """When all die only the last one may return, however long that takes."""
    bury = transitions._bury

    def last_only(states: Any, known: Any) -> Any:
        gone = bury(states, known)
        lastsrv = [target for target, state in states.items() if state is PublicState.LASTSRV]
        for target in lastsrv[:-1]:
            states[target] = PublicState.OFFLINE
        return gone

    put(transitions, "_bury", last_only)


@plant
def no_wait_after_election() -> None:
    """R9: a new primary takes everyone for dead of whom it has not heard."""
    init = Membership.__init__

    def impatient(self: Membership, clock: Any) -> None:
        init(self, clock)
        self._began = -math.inf

    put(Membership, "__init__", impatient)


@plant
def demoted_before_the_lease_ends() -> None:
    """R9: a target is put out a fifth of T after its last heartbeat."""
    judge = Membership.judge

    def hasty(self: Membership, chain: Any, routing: Any, lease_s: float) -> Any:
        return judge(self, chain, routing, lease_s / 5)

    put(Membership, "judge", hasty)


@plant
def leased_whatever_it_knows() -> None:
    """R9: a lease is granted to a target that does not know its chain version."""
    hear = Membership.hear

    def generous(self: Membership, node_id: int, incarnation: int, reports: Any, routing: Any) -> Any:
        _, news = hear(self, node_id, incarnation, reports, routing)
        return [report.target_id for report in reports], news

    put(Membership, "hear", generous)


@plant
def restart_not_noticed() -> None:
    """R8: a new incarnation goes on where the old one was, without a new chain version."""
    put(Overseer, "restarted", lambda self, node_id: None)

    async def take(writer: Any, request: Any, *, started_before: bool) -> None:
        await asyncio.sleep(0)

    put(service_module, "_take_stores", take)


@plant
def wiped_survivor_serves() -> None:
    """A lastsrv target whose disk was exchanged serves alone, with nothing."""
    known = Membership._known

    def trusting(self: Membership, target: Any, chain: Any, routing: Any, lease_s: float) -> Any:
        report = self._reports.get(target)
        if report is not None:
            report.store_id = routing.targets[target].store_id
        return known(self, target, chain, routing, lease_s)

    put(Membership, "_known", trusting)


@plant
def epoch_not_checked() -> None:
    """I8: a deposed manager goes on writing."""
    put(Epoch, "_check", lambda self, lease: None)


@plant
def deposed_manager_acknowledges() -> None:
    """R10: heartbeats are acknowledged however old the primary's own renewal is."""
    put(Election, "may_acknowledge", property(lambda self: self.epoch is not None))
    put(Election, "primary", property(lambda self: self.epoch is not None))


@plant
def challenger_does_not_wait() -> None:
    """R10: a manager takes over as soon as it sees another one's lease."""
    init = Election.__init__

    def hasty(self: Election, *args: Any, **more: Any) -> None:
        init(self, *args, **(more | {"alone": True}))

    put(Election, "__init__", hasty)
