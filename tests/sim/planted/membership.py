"""Leases, elections, chain tables: the rules R7 to R10 and R13, and what processes say of themselves."""

import dataclasses
import math
from typing import Any

from threefs_manager import election as election_module
from threefs_manager import service as service_module
from threefs_manager.chains import transitions
from threefs_manager.chains.controller import ChainController
from threefs_manager.election import Election, Epoch
from threefs_manager.nodes import registry as node_registry
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.nodes.presence import PresenceCalls
from threefs_manager.store import cluster_store
from threefs_manager.store.cluster_store import Store, Writer
from threefs_storage.targets import Targets

from tests.harness.simulated.clock import SimClock
from tests.sim.planted.registry import plant, plant_for, put
from threefs.cluster import registration as registration_module
from threefs.cluster.registration import Registration
from threefs.kv import retry
from threefs.routing import PublicState


@plant
def anyone_returns() -> None:
    """R7: when nothing serves, any target that returns serves alone."""

    def returns(states: Any, members: Any, known: Any) -> None:
        if PublicState.SERVING not in states.values():
            for member in members:
                if transitions._is_alive(member.target_id, known):
                    states[member.target_id] = PublicState.SERVING
                    return

    put(transitions, "_return_lastsrv", returns)


@plant
def only_one_lastsrv() -> None:
    """When all die only the last one may return, however long that takes."""
    remove_dead = transitions._remove_dead

    def last_only(states: Any, known: Any) -> Any:
        gone = remove_dead(states, known)
        lastsrv = [target for target, state in states.items() if state is PublicState.LASTSRV]
        for target in lastsrv[:-1]:
            states[target] = PublicState.OFFLINE
        return gone

    put(transitions, "_remove_dead", last_only)


@plant_for(
    "unit/services/threefs_manager/nodes/test_failure_detector.py"
    "::test_r13_a_witness_counts_only_if_it_was_heard_of_since_the_others_were_lost"
)
def witness_may_be_dead_as_well() -> None:
    """R13: a serving target is put offline because another one was heard of before it was lost."""
    put(FailureDetector, "_heard_since_loss", lambda self, witness, chain: True)


@plant_for(
    "contract/test_chain_transactions.py::test_targets_that_another_transaction_has_told_to_be_out_may_come_back"
)
def only_an_answer_lets_targets_return() -> None:
    """R9: a fence ends with the answer about its change only, so it stays for ever if that was lost (seed 969)."""
    evaluate = ChainController._evaluate

    async def as_before(self: ChainController, dirty: Any) -> None:
        detector = self._failure_detector
        calls: list[Any] = []

        def unfence(routing: Any) -> None:
            calls.append(routing)
            if len(calls) > 1:  # the first call is that of the evaluation itself
                FailureDetector.unfence(detector, routing)

        put(detector, "unfence", unfence)
        await evaluate(self, dirty)

    put(ChainController, "_evaluate", as_before)


@plant_for("contract/test_lost_answers.py::test_disks_are_levelled")
def store_is_not_read_again() -> None:
    """What was changed by a transaction whose answer was lost counts only with the next primary."""

    async def nothing(self: ChainController) -> None:
        pass

    put(ChainController, "_catch_up", nothing)


@plant
def no_wait_after_election() -> None:
    """R9: a new primary takes everyone for dead of whom it has not heard."""
    init = FailureDetector.__init__

    def impatient(self: FailureDetector, clock: Any) -> None:
        init(self, clock)
        self._term_started_at = -math.inf

    put(FailureDetector, "__init__", impatient)


@plant
def demoted_before_the_lease_ends() -> None:
    """R9: a target is put out a fifth of T after its last heartbeat."""
    evaluate = FailureDetector.evaluate

    def hasty(self: FailureDetector, chain: Any, routing: Any, lease_s: float) -> Any:
        return evaluate(self, chain, routing, lease_s / 5)

    put(FailureDetector, "evaluate", hasty)


@plant_for(
    "unit/services/threefs_manager/nodes/test_failure_detector.py::test_only_targets_of_the_write_path_that_know_the_newest_version_get_a_lease"
)
def leased_whatever_it_knows() -> None:
    """R9: a lease is granted to a target that does not know its chain version."""
    on_heartbeat = FailureDetector.on_heartbeat

    def generous(self: FailureDetector, node_id: int, incarnation: int, reports: Any, routing: Any) -> Any:
        _, changed = on_heartbeat(self, node_id, incarnation, reports, routing)
        return [report.target_id for report in reports], changed

    put(FailureDetector, "on_heartbeat", generous)


@plant
def restart_not_noticed() -> None:
    """R8: a new incarnation goes on where the old one was, without a new chain version."""
    put(ChainController, "on_process_death", lambda self, node_id: None)

    put(node_registry, "_record_stores", lambda writer, request, *, started_before: None)


@plant
def wiped_survivor_serves() -> None:
    """A lastsrv target whose disk was exchanged serves alone, with nothing.

    The report itself still names the new store: as a report of the old one it would be that of an older copy, which
    has a rule of its own (`old_copy_serves_alone`)."""
    known = FailureDetector._local_state

    def trusting(self: FailureDetector, target: Any, chain: Any, routing: Any, lease_s: float) -> Any:
        report = self._reports.get(target)
        if report is not None:
            named = dataclasses.replace(routing.targets[target], store_id=report.store_id)
            routing = dataclasses.replace(routing, targets={**routing.targets, target: named})
        return known(self, target, chain, routing, lease_s)

    put(FailureDetector, "_local_state", trusting)


@plant
def epoch_not_checked() -> None:
    """I8: a deposed manager goes on writing."""
    put(Epoch, "_check", lambda self, lease, term: None)


@plant_for("unit/services/threefs_manager/test_election.py::test_a_takeover_in_the_middle_of_a_transaction_fences_it")
def takeover_does_not_conflict() -> None:
    """I8: a transaction looks at the term when it begins, and commits whoever has taken over since."""

    async def run(self: Epoch, function: Any, *, replayable: bool = False, timeout_s: float = 10.0) -> Any:
        async def guarded(tx: Any) -> Any:
            self._check(*await election_module._read_lease_and_term(tx))
            return await function(tx)

        own: dict[str, Any] = {"clock": self._clock, "random": self._random}
        return await retry.run(self._engine, guarded, **own, replayable=replayable, timeout_s=timeout_s)

    put(Epoch, "run", run)


@plant
def deposed_manager_acknowledges() -> None:
    """R10: heartbeats are acknowledged however old the primary's own renewal is."""
    put(Election, "may_acknowledge", property(lambda self: self.epoch is not None))
    put(Election, "is_primary", property(lambda self: self.epoch is not None))


@plant_for("sim/test_failover_length.py::test_a_store_that_is_away_for_longer_than_t_puts_nobody_out")
def primary_blames_nodes_for_its_own_silence() -> None:
    """R9: it refuses heartbeats while the store is away, and takes their senders for dead when the store is back."""
    put(FailureDetector, "on_refused", lambda self, request, routing: None)


@plant
def challenger_does_not_wait() -> None:
    """R10: a manager takes over as soon as it sees another one's lease."""
    init = Election.__init__

    def hasty(self: Election, *args: Any, **more: Any) -> None:
        init(self, *args, **(more | {"exclusive": True}))

    put(Election, "__init__", hasty)


@plant_for("unit/threefs/cluster/test_registration.py::test_r10_a_lease_counts_from_the_sending_of_the_heartbeat")
def lease_counts_from_the_answer() -> None:
    """R10: a lease begins when the answer to the heartbeat comes, however long that took."""
    send = Registration._send

    async def late(self: Registration) -> None:
        opened = self._open_grant

        def open_grant() -> Any:
            grant = opened()
            return lambda targets, until: grant(targets, self._clock.monotonic() + self._lease_s / 2)

        self._open_grant = open_grant
        try:
            await send(self)
        finally:
            self._open_grant = opened

    put(Registration, "_send", late)


@plant
def lease_of_all_of_t() -> None:
    """A target serves for all of T after its heartbeat, as long as the manager waits by another clock."""
    opened = Targets.open_grant

    def open_grant(self: Targets) -> Any:
        grant = opened(self)
        return lambda targets, until: grant(targets, until + 1.05)

    put(Targets, "open_grant", open_grant)


@plant_for(
    "cluster/services/threefs_storage/test_targets.py::test_a_grant_that_was_asked_for_before_leases_were_given_up_is_void"
)
def grant_of_before_counts() -> None:
    """A heartbeat that was sent before the leases were given up brings them back."""
    opened = Targets.open_grant

    def open_grant(self: Targets) -> Any:
        opened(self)

        def grant(targets: Any, until: float) -> None:
            for target_id in targets:
                target = self.by_id.get(target_id)
                if target is not None:
                    target.leased_until = max(target.leased_until, until)

        return grant

    put(Targets, "open_grant", open_grant)


@plant_for(
    "unit/services/threefs_manager/nodes/test_failure_detector.py::test_a_fenced_target_gets_no_lease_until_the_chain_says_that_it_is_out"
)
def condemned_are_leased() -> None:
    """R9: a target gets a lease while the transaction that takes it out is on its way."""
    on_heartbeat = FailureDetector.on_heartbeat

    def generous(self: FailureDetector, *args: Any) -> Any:
        fenced, self._fenced = self._fenced, {}
        try:
            return on_heartbeat(self, *args)
        finally:
            self._fenced = fenced | self._fenced

    put(FailureDetector, "on_heartbeat", generous)


@plant
def syncing_becomes_lastsrv() -> None:
    """R7: when the last serving target dies, the one that was being brought up to date serves alone."""
    step = transitions._return_lastsrv

    def hasty(states: Any, members: Any, known: Any) -> None:
        for target, state in states.items():
            if state is PublicState.SYNCING and PublicState.SERVING not in states.values():
                states[target] = PublicState.SERVING
                return
        step(states, members, known)

    put(transitions, "_return_lastsrv", hasty)


@plant
def end_of_a_connection_is_death() -> None:
    """R9: a process is taken for dead because a connection of it has ended, though it listens."""

    async def nobody_listens(*args: Any) -> bool:
        return True

    put(service_module, "nobody_listens", nobody_listens)


@plant
def late_register_is_taken() -> None:
    """R8: a registration of a process that is gone puts out the one that lives."""
    put(node_registry, "check_incarnation", lambda *args: None)


@plant
def clock_stops_in_suspend() -> None:
    """A machine that is suspended wakes up with its lease as it was: its clock has not gone on."""

    def monotonic(self: SimClock) -> float:
        slept_s = self.process.slept_s if self.process is not None else 0.0
        return (self._loop._now - slept_s) * self._rate + self._offset_s

    put(SimClock, "monotonic", monotonic)


@plant
def stop_without_a_farewell() -> None:
    """A process that is stopped tells the manager that it is out, while it goes on serving."""

    def later(self: Targets) -> None:
        for target in self:
            until = target.leased_until
            target.leave()
            target.leased_until = until

    put(Targets, "leave", later)


@plant
def heartbeats_stop() -> None:
    """I19: the task that sends heartbeats ends with the first one that fails."""

    async def beat(self: Registration) -> None:
        while True:
            await self._send()
            await self._wait_interval()

    put(Registration, "_send_heartbeats", beat)


@plant
def store_not_noted() -> None:
    """A target whose disk was exchanged is taken for the one that has served last."""
    put(node_registry, "_record_stores", _takes_none)


def _takes_none(writer: Any, request: Any, *, started_before: bool) -> None:
    for store in request.stores:
        target = writer.routing.targets[store.target_id]
        writer.put_target(dataclasses.replace(target, store_id=store.store_id))


@plant_for(
    "unit/threefs/cluster/test_registration.py::test_a_process_that_is_fenced_registers_anew_with_a_higher_incarnation"
)
def fenced_process_keeps_its_leases() -> None:
    """R8: a process that is taken for dead goes on serving while it registers anew."""
    anew = Registration._register_anew

    async def keeping(self: Registration) -> None:
        self._fenced = lambda: None
        await anew(self)

    put(Registration, "_register_anew", keeping)


@plant_for(
    "unit/services/threefs_manager/store/test_cluster_store.py::test_the_routing_that_is_kept_is_what_the_store_has[0]"
)
def the_known_routing_is_older() -> None:
    """A manager goes on from the routing that it knows, though an attempt of unknown outcome has changed it."""

    async def known(self: Store, version: int, tx: Any) -> Any:
        return self._known or await cluster_store.read_routing(tx)

    put(Store, "_routing_at", known)


@plant_for(
    "unit/services/threefs_manager/store/test_cluster_store.py::test_the_routing_that_is_kept_is_what_the_store_has[0]"
)
def a_drop_is_not_known() -> None:
    """A manager keeps in memory what it has dropped from the routing."""

    def drop_target(self: Writer, target_id: Any) -> None:
        drop(self, target_id)
        del self._targets[target_id]

    drop = Writer.drop_target
    put(Writer, "drop_target", drop_target)


@plant_for("unit/threefs/cluster/test_registration.py::test_a_heart_that_can_never_beat_dies")
def heart_that_never_beats_lives() -> None:
    """I19: a process that can send no heartbeat lives on for ever."""
    put(registration_module, "_MAX_FAILURES", -1)


@plant_for(
    "unit/services/threefs_manager/test_service.py::test_presence_is_kept_only_of_the_newest_process_and_at_the_primary"
)
def presences_stay_at_a_deposed_manager() -> None:
    """The new primary does not hear of the end of a process, whose call is still open at the old one."""
    put(PresenceCalls, "end_all", lambda self: None)
