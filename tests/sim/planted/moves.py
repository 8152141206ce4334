"""Members of chains that move: who leaves when, and what is deleted."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from threefs_manager.chains import controller, move_executor, moves
from threefs_manager.chains.controller import ChainController
from threefs_manager.chains.move_executor import MoveExecutor
from threefs_manager.chains.moves import Move, MoveStep
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.store.cluster_store import Writer
from threefs_storage.target import Target
from threefs_storage.targets import Targets

from tests.sim.planted.registry import plant_for, put
from threefs.ids import ChainId, TableId
from threefs.routing import Chain, Hold, Routing

_TABLES = "unit/services/threefs_manager/test_chain_tables.py"
_EXECUTOR = "unit/services/threefs_manager/chains/test_move_executor.py"
_HOLDS = "unit/services/threefs_manager/chains/test_holds.py"
_STORED = "cluster/services/threefs_storage/test_targets.py"
_MOVES = "unit/services/threefs_manager/chains/test_moves.py"
_TRANSITIONS = "unit/services/threefs_manager/chains/test_transitions.py"


@plant_for(
    "unit/services/threefs_manager/nodes/test_failure_detector.py::test_a_target_that_a_move_takes_away_counts_as_alive_until_its_lease_has_ended"
)
def leaving_target_is_put_out_at_once() -> None:
    """R9: a target that is to leave is taken for dead while it holds a lease."""
    withhold_lease = FailureDetector.withhold_lease

    def hasty(self: FailureDetector, chain: Any, target: Any) -> None:
        withhold_lease(self, chain, target)
        if target is not None and target == chain.leaving:
            self.fence([target])

    put(FailureDetector, "withhold_lease", hasty)
    put(Target, "gives_way", property(lambda self: False))


@plant_for(f"{_MOVES}::test_nothing_leaves_before_the_added_target_serves_again")
def place_is_given_up_before_it_is_filled() -> None:
    """A chain loses one copy before it has the other."""

    def hasty(move: Move, chain: Chain, *, is_damaged: bool) -> MoveStep:
        if move.removed and chain.state(move.removed) is not None and chain.leaving is None:
            return MoveStep.MARK_LEAVING
        return step(move, chain, is_damaged=is_damaged)

    step = moves.next_step
    put(moves, "next_step", hasty)
    put(move_executor, "next_step", hasty)


@plant_for(f"{_MOVES}::test_nothing_leaves_while_it_may_have_the_only_good_copy_of_a_chunk")
def last_good_copy_is_given_up() -> None:
    """A member leaves although those that stay have damaged chunks, which only it could repair."""

    def blind(move: Move, chain: Chain, *, is_damaged: bool) -> MoveStep:
        return step(move, chain, is_damaged=False)

    step = moves.next_step
    put(moves, "next_step", blind)
    put(move_executor, "next_step", blind)


@plant_for(f"{_MOVES}::test_one_disk_is_filled_by_one_move_at_a_time")
def all_moves_begin_at_once() -> None:
    """Each disk is filled by all its new targets at the same time."""
    work_of = moves._work_of

    def but_filling(move: Move, routing: Routing) -> list[Any]:
        return [work for work in work_of(move, routing) if work[0] is not moves._Work.FILLING]

    put(moves, "_work_of", but_filling)


@plant_for(f"{_EXECUTOR}::test_the_next_primary_goes_on_with_the_moves")
def new_primary_forgets_moves() -> None:
    """Moves are not loaded by the manager that takes over. It plans others for the chains that have a copy too many."""

    async def nothing(self: MoveExecutor) -> None:
        self.balancing = (await self._store.load_cluster()).balancing

    put(MoveExecutor, "load", nothing)


@plant_for(f"{_EXECUTOR}::test_moves_are_known_although_their_commit_was_not_answered")
def moves_of_an_unanswered_commit_are_forgotten() -> None:
    """A chain whose move is stored, and that the primary does not know of, gets no other one: nothing ever moves."""
    store_plan = MoveExecutor.store_plan

    async def forgetful(self: MoveExecutor, planned: Sequence[Move], writer: Writer) -> dict[ChainId, Move]:
        known = await move_executor.stored_moves(writer)
        stored = await store_plan(self, planned, writer)
        return {chain_id: move for chain_id, move in stored.items() if chain_id not in known}

    put(MoveExecutor, "store_plan", forgetful)


@plant_for("cluster/services/threefs_storage/test_targets.py::test_a_target_that_a_routing_does_not_name_is_kept")
def target_without_a_record_is_deleted() -> None:
    """A manager with an older store makes nodes delete what was added since."""
    apply_routing = Targets.apply_routing

    def hasty(self: Targets, routing: Routing) -> list[Target]:
        changed = apply_routing(self, routing)
        for target in self:
            if target.target_id not in routing.targets:
                target.state = None
        return changed

    put(Targets, "apply_routing", hasty)


@plant_for(f"{_STORED}::test_only_a_target_that_the_routing_still_names_is_deleted")
def target_that_nobody_names_is_deleted() -> None:
    """A restored manager, which continues a chain without knowing of a member, makes its node delete the only copy."""
    put(Targets, "set_aside", Targets.delete)


@plant_for(f"{_TRANSITIONS}::test_a_leaving_target_that_is_out_never_returns")
def leaving_target_returns() -> None:
    """A target that was put out for a move is filled again, and put out again."""
    from threefs_manager.chains import transitions

    catch_up = transitions._catch_up
    put(transitions, "_catch_up", lambda states, leaving, observed: catch_up(states, set(), observed))


@plant_for(f"{_HOLDS}::test_a_target_out_of_service_stays_out_until_it_is_wanted_again")
def held_target_returns() -> None:
    """A target that was taken out of service is filled again, and taken out again, for ever."""
    put(controller, "held_out", lambda chain, routing: [])


@plant_for(f"{_HOLDS}::test_a_target_out_of_service_stays_out_until_it_is_wanted_again")
def held_target_is_put_out_at_once() -> None:
    """R9: a target that is to be out of service is taken for dead while it holds a lease."""
    withhold_lease = FailureDetector.withhold_lease

    def hasty(self: FailureDetector, chain: Any, target: Any) -> None:
        withhold_lease(self, chain, target)
        if target is not None:
            self.fence([target])

    put(FailureDetector, "withhold_lease", hasty)


@plant_for(f"{_STORED}::test_a_target_that_is_held_gives_its_lease_up_unless_a_write_needs_it")
def held_target_leaves_although_a_write_needs_it() -> None:
    """Two targets of a chain that are out of service stop its writes, although nobody has forced that."""
    put(Routing, "yields", lambda self, target, chain, minimum: self.hold(target) is not Hold.NONE)


@plant_for(f"{_HOLDS}::test_a_head_that_rotates_returns_behind_the_others")
def rotation_never_ends() -> None:
    """A head that has rotated keeps the mark, and leaves again as soon as it is the head once more."""

    async def nothing(self: ChainController, writer: Any, before: Chain, after: Chain) -> list[Any]:
        return []

    put(ChainController, "_changed_targets", nothing)


@plant_for(f"{_TABLES}::test_a_new_chain_is_served_by_those_that_live_and_knows_their_stores")
def store_of_a_new_chain_is_not_recorded() -> None:
    """R7: a target of a new chain serves, and an exchanged disk passes for it later."""
    put(ChainController, "_refilled_targets", lambda self, before, after: [])


@plant_for(f"{_TABLES}::test_each_table_is_spread_evenly_by_itself_when_nodes_join_and_leave")
def tables_are_leveled_together() -> None:
    """One table is full on some disks, and the other one on others."""

    def together(self: MoveExecutor, routing: Routing, *args: Any, **options: Any) -> list[Move]:
        one = {TableId(1): tuple(routing.chains)}
        return plan(self, dataclasses.replace(routing, tables=one), *args, **options)

    plan = MoveExecutor.plan
    put(MoveExecutor, "plan", together)


@plant_for(f"{_MOVES}::test_what_serves_goes_only_from_a_whole_chain")
def copy_that_serves_goes_while_another_one_is_dead() -> None:
    """A chain that is to lose a copy loses a good one, and has fewer than it should have if the dead one stays away."""
    put(moves, "is_sensible", lambda move, chain: True)


@plant_for(f"{_EXECUTOR}::test_a_node_that_dies_for_good_while_it_is_filled_is_given_up")
def dead_node_is_waited_for_for_ever() -> None:
    """A move to a node that is dead for good never ends, and nothing else is planned."""
    put(MoveExecutor, "_is_futile", lambda self, move, routing: False)


@plant_for(f"{_EXECUTOR}::test_undrain_takes_back_what_does_not_serve_yet")
def taken_back_moves_keep_their_target() -> None:
    """The record of a move that is taken back goes, and the target that it has added stays: one copy too many."""
    put(moves, "reverted", lambda move, chain: None)
    put(MoveExecutor, "_is_resizing", lambda self, routing: False)
