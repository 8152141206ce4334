"""Carries moves out: starts them within the bounds, changes their chains, and plans further ones."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import structlog

from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.env.clock import Clock
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import EMPTY, Node, NodeKind, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains import moves
from threefs_manager.chains.holds import giving_way, nodes_out, stands_in
from threefs_manager.chains.move_progress import MoveProgress, lasting, resynced, stuck_chains
from threefs_manager.chains.moves import Move, MoveBounds, MoveStep, next_step
from threefs_manager.chains.transitions import add_member, keep_leaving, mark_leaving
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.placement.plan import MAX_TARGETS_PER_DISK
from threefs_manager.placement.rebalance import plan_shifts
from threefs_manager.placement.replica_changes import LACKING, plan_removals, with_lacking
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer

_UNNUMBERED = TargetId((1 << 32) - 1)  # until the move is stored
_BATCH = 64  # most chains that one transaction changes
_GIVE_UP_LEASES = 30  # an added target that was offline, or made no progress, for so many T is not waited for any more
_AVOIDED_LEASES = 300  # for so many T after a target on a node was given up, others are tried first
_MAX_QUEUED = 1024  # moves; the next plan finds what is left

_Found = tuple[Routing, Sequence[Target], bool, Sequence[ChainId], Collection[NodeId]]

_LOG = structlog.get_logger()


class MoveExecutor:
    """Of one term as primary. Only the task of the chain controller calls `advance`."""

    def __init__(
        self,
        store: Store,
        publisher: RoutingPublisher,
        routing_to_judge: Callable[[], Routing],
        failure_detector: FailureDetector,
        clock: Clock,
    ) -> None:
        self.routing_to_judge = routing_to_judge  # its nodes may be judged by their silence, until the next wait
        self.moves: dict[ChainId, Move] = {}
        self.balancing = False
        self.bounds: Callable[[], MoveBounds] = MoveBounds  # of moves under way
        self.kept_bytes: Callable[[int], int] = lambda capacity_bytes: 0  # what no move may take of such a disk
        self._known_at = 0  # the version of the routing when `moves` were all that there are
        self._store = store
        self._publisher = publisher
        self._failure_detector = failure_detector
        self._clock = clock
        #: Targets that are being added: since when they are offline, and when they were seen so last.
        self._offline: dict[TargetId, tuple[float, float]] = {}
        self._gave_up_at: dict[NodeId, float] = {}  # when a target that was being added on a node was given up last
        #: Chains whose leaving target is needed, in the same way, each with what its resyncs had done.
        self._stuck: dict[tuple[ChainId, int], tuple[float, float]] = {}
        self._plan_at = 0.0  # by the clock: large plans take a while
        self._held_up_by: set[NodeId] = set()  # out of service: the last plan had nothing to do but to wait for them
        self._progress = MoveProgress(clock)
        self._removed_in: dict[TargetId, int] = {}  # the version of the routing in which a target was seen removed
        #: A routing, its removed targets, whether some chain has too many or too few members, those that one leaves,
        #: and the nodes out of service.
        self._found: _Found = (EMPTY, (), False, (), frozenset())

    def follow(self, bounds: Callable[[], MoveBounds], kept_bytes: Callable[[int], int]) -> None:
        """Keep to what the configuration says at any time."""
        self.bounds, self.kept_bytes = bounds, kept_bytes

    async def load(self) -> None:
        """Take over the moves of earlier terms."""
        self.moves = {move.chain_id: move for move in map(moves.from_wire, await self._store.load_moves())}
        self.balancing = (await self._store.load_cluster()).balancing

    async def advance(self) -> set[ChainId]:
        """One step of each move that may go on; returns the chains that have changed. Raises ThreefsError."""
        await self._forget_removed()
        self._progress.observe(self.moves.values(), self._publisher.routing, self._failure_detector.report)
        await self._withdraw_futile()
        await self._end_stuck()
        if not any(map(self._holds_up_plans, self.moves.values())):
            await self._plan_next()
        routing = self._publisher.routing
        going = {
            chain_id: move
            for chain_id, move in self.moves.items()
            if moves.is_under_way(move, routing.chains[chain_id]) or not self._waits(move)
        }
        due = [move for move in moves.startable(going, routing, self.bounds()) if not self._waits(move)]
        changed: set[ChainId] = set()
        for first in range(0, len(due), _BATCH):
            changed |= await self._apply(due[first : first + _BATCH])
        return changed

    async def _apply(self, due: Sequence[Move]) -> set[ChainId]:
        done: list[Move] = []
        changed: set[ChainId] = set()
        replaced: dict[ChainId, Move | None] = {}

        async def write(writer: Writer) -> None:
            done.clear()
            changed.clear()
            replaced.clear()
            # Also the targets that are being deleted: the node reports them.
            carried = Counter(target.node_id for target in writer.routing.targets.values())
            out = nodes_out(writer.routing)
            for move in due:
                record = await writer.move(move.chain_id)
                stored = None if record is None else moves.from_wire(record)
                if stored != move:  # an attempt of unknown outcome has finished it, or it was taken back since
                    replaced[move.chain_id] = stored
                    continue
                chain = writer.routing.chains[move.chain_id]
                match self._next_step(move, writer.routing):
                    case MoveStep.ADD if carried[move.added_node] >= MAX_TARGETS_PER_DISK or move.added_node in out:
                        # What was to leave it is there still, and may stay after all, or nobody counts on its disk any
                        # more: the next plan sees.
                        writer.drop_move(move.chain_id)
                        replaced[move.chain_id] = None
                        continue
                    case MoveStep.ADD:
                        carried[move.added_node] += 1
                        target = Target(move.added, move.added_node, move.chain_id)
                        writer.put_chains([add_member(chain, move.added)], [target])
                    case MoveStep.MARK_LEAVING:
                        writer.put_chains([mark_leaving(chain, move.removed)])
                    case MoveStep.DONE:
                        writer.drop_move(move.chain_id)
                        done.append(move)
                    case MoveStep.WAIT:
                        continue
                changed.add(move.chain_id)

        _, routing = await self._store.change(write)
        self._publisher.publish(routing)
        for chain_id, found in replaced.items():
            if found is None:
                self.moves.pop(chain_id, None)
            else:
                self.moves[chain_id] = found
        for move in done:
            self.moves.pop(move.chain_id, None)
            _LOG.info("a chain has moved", chain=move.chain_id, added=move.added, removed=move.removed)
        return changed

    def _next_step(self, move: Move, routing: Routing) -> MoveStep:
        chain = routing.chains[move.chain_id]
        staying = [target for target in chain.serving if target != move.removed]
        step = next_step(move, chain, is_damaged=not all(map(self._failure_detector.reports_sound, staying)))
        # First goes whom an administrator has taken out of service: with one less it would stay, for ever. And first
        # returns whose place this one has: it could not leave, and the end of its move would cost that one its copy.
        held = giving_way(chain, routing) or stands_in(move.removed, chain, routing)
        return MoveStep.WAIT if step is MoveStep.MARK_LEAVING and held else step

    def _waits(self, move: Move) -> bool:
        return self._next_step(move, self._publisher.routing) is MoveStep.WAIT

    def _holds_up_plans(self, move: Move) -> bool:
        """Whether other moves are planned only after this one. One that waits for a lost disk may wait for ever."""
        chain = self._publisher.routing.chains[move.chain_id]
        if moves.is_under_way(move, chain):
            return bool(move.added) and moves.is_at_work(move, chain)
        return bool(chain.serving) and moves.is_sensible(move, chain) and not self._waits(move)

    @property
    def is_settled(self) -> bool:
        """Whether nothing moves, and all chains have the copies that they should have. Disks may drain that have to."""
        return not (self.moves or self.balancing or self._is_resizing(self._publisher.routing))

    @property
    def plans_more(self) -> bool:
        """Whether other moves are planned when those that there are have been done."""
        routing = self._publisher.routing
        draining = moves.draining_nodes(routing)
        drains = any(t.node_id in draining and not routing.is_removed(t) for t in routing.targets.values())
        return (self.balancing and not self.awaited_nodes) or drains or self._is_resizing(routing)

    @property
    def awaited_nodes(self) -> list[NodeId]:
        """The nodes out of service for which levelling the disks waits, while nothing else is left to move."""
        is_current = self._held_up_by == self._nodes_out(self._publisher.routing)  # else the next plan may find more
        return sorted(self._held_up_by) if is_current and self.balancing and not self.moves else []

    def _nodes_out(self, routing: Routing) -> set[NodeId]:
        """Disks that an administrator has taken out of service for a while: they are filled when they are back."""
        return set(self._look_through(routing)[4]) - moves.draining_nodes(routing)

    def progress(self) -> Iterator[pb.MoveProgress]:
        """Of the moves that add a target."""
        return self._progress.rows(self.moves.values(), self._publisher.routing, self._failure_detector.report)

    # ---- plans

    def plan(
        self, routing: Routing, draining: Collection[NodeId], *, balance: bool, avoided: Collection[NodeId] = ()
    ) -> list[Move]:
        """The next moves, with target id 0 for those that are added: ids are given out when the moves are stored.

        Without `balance` only the disks that drain lose targets. The nodes that are `avoided` get none.
        """
        held = {chain_id: self._nodes_after_move(chain_id, routing) for chain_id in routing.chains}
        load = Counter(node for nodes in held.values() for node in nodes)
        takers = [n.node_id for n in routing.nodes.values() if self._can_take(n, routing) and n.node_id not in avoided]
        full = {node.node_id for node in routing.nodes.values() if self._is_full(node, routing)}
        planned: list[Move] = []
        for table_id, table in routing.tables.items():
            chains = {chain_id: held[chain_id] for chain_id in table}
            load.subtract(node for nodes in chains.values() for node in nodes)
            found = self._plan_table(chains, table_id, routing, takers, full, set(draining), load, balance)
            load.update(node for nodes in chains.values() for node in nodes)
            load.update(move.added_node for move in found if move.added)
            load.subtract(routing.targets[move.removed].node_id for move in found if move.removed)
            planned += found
        return planned[:_MAX_QUEUED]

    def _nodes_after_move(self, chain_id: ChainId, routing: Routing) -> list[NodeId]:
        """The nodes of the chain's members when the move that there is has been done."""
        move, members = self.moves.get(chain_id), routing.chains[chain_id].members
        if move is None:
            return [routing.targets[member.target_id].node_id for member in members]
        nodes = [routing.targets[m.target_id].node_id for m in members if m.target_id != move.removed]
        comes = move.added_node in routing.nodes and move.added_node not in nodes
        return [*nodes, move.added_node] if comes else nodes

    def _plan_table(
        self,
        chains: Mapping[ChainId, Sequence[NodeId]],
        table_id: TableId,
        routing: Routing,
        takers: Collection[NodeId],
        full: set[NodeId],
        draining: set[NodeId],
        elsewhere: Mapping[NodeId, int],
        balance: bool,
    ) -> list[Move]:
        """The next moves of the chains of a table; if some have copies too many, these go first."""
        replicas = routing.replicas.get(table_id, 0)
        domain_of = {LACKING: "", **{node.node_id: node.domain for node in routing.nodes.values()}}
        settled = {chain_id: nodes for chain_id, nodes in chains.items() if self._is_settled(chain_id, routing)}
        if replicas and any(len(nodes) > replicas for nodes in settled.values()):
            removals = plan_removals(
                settled,
                domain_of,
                replicas,
                draining=draining,
                broken={c: moves.broken_disks(c, routing) for c in settled},
            )
            return [Move(r.chain_id, removed=moves.target_on(r.source, r.chain_id, routing)) for r in removals]
        size = {chain_id: self._bytes_of(chain_id, routing) for chain_id in chains}
        usable = {node: self._usable_bytes(node) for node in takers}
        held = Counter(node for nodes in chains.values() for node in nodes)
        shifts = plan_shifts(
            with_lacking(chains, replicas),
            domain_of,
            takers=takers,
            draining={LACKING, *draining},
            level=balance,
            elsewhere=elsewhere,
            full=full | {node for node in takers if usable[node] < min(size.values(), default=0)},
            read_only=full,
            has_room=lambda chain_id, node: chain_id in settled and usable[node] >= size[chain_id],
            free_places={node: MAX_TARGETS_PER_DISK - elsewhere.get(node, 0) - held[node] for node in takers},
        )
        return [
            Move(shift.chain_id, _UNNUMBERED, shift.destination, moves.target_on(shift.source, shift.chain_id, routing))
            for shift in shifts
        ]

    def _is_settled(self, chain_id: ChainId, routing: Routing) -> bool:
        """Whether a chain that serves can change its members, and nothing does now. One may be leaving without a move,
        whose record was damaged."""
        chain = routing.chains[chain_id]
        return chain_id not in self.moves and chain.leaving is None and bool(chain.serving)

    def _can_take(self, node: Node, routing: Routing) -> bool:
        """Whether a further target may come to the node: nobody counts on the disk of one that is out of service."""
        is_sound = self._is_there(node, routing) and not self._failure_detector.reports_failure(node.node_id)
        return is_sound and node.node_id not in self._look_through(routing)[4]

    def _is_full(self, node: Node, routing: Routing) -> bool:
        return self._is_there(node, routing) and self._failure_detector.reports_full(node.node_id)

    def _is_there(self, node: Node, routing: Routing) -> bool:
        lives = self._failure_detector.is_alive(node.node_id, routing.lease_s)
        return node.kind is NodeKind.STORAGE and bool(node.address) and lives

    def _is_awaited(self, node: Node, routing: Routing) -> bool:
        """Whether a storage node has not been heard of, in a term that has not lasted for T: it may live."""
        known = self._is_there(node, routing) or self._failure_detector.is_silent(node.node_id, routing.lease_s)
        return node.kind is NodeKind.STORAGE and bool(node.address) and not known

    def _usable_bytes(self, node_id: NodeId) -> float:
        """How large a target may be that the disk is filled with, so that it takes writes of clients then. A move that
        needs more would be given up when the disk is full, and be planned again."""
        space = self._failure_detector.space(node_id)
        if space is None:
            return math.inf
        free_bytes, capacity_bytes = space
        return free_bytes - self.kept_bytes(capacity_bytes)

    def _bytes_of(self, chain_id: ChainId, routing: Routing) -> int:
        """What the largest target of the chain takes."""
        reports = (self._failure_detector.report(member.target_id) for member in routing.chains[chain_id].members)
        return max((int(report.used_bytes) for report in reports if report is not None), default=0)

    async def store_plan(self, planned: Sequence[Move], writer: Writer) -> dict[ChainId, Move]:
        """Store the moves, with the ids of their new targets, where chains have none yet; returns all moves that there
        are then, for `take_over`. Those of an attempt of unknown outcome are among them. Left out is what another call
        has made impossible since the plan: the next plan does without."""
        cluster = writer.cluster
        stored = await stored_moves(writer)
        for move in planned:
            if move.chain_id in stored or not moves.is_possible(move, writer.routing):
                continue
            if move.added:
                cluster.next_target = max(cluster.next_target, FIRST_ADDED_TARGET) + 1
                move = dataclasses.replace(move, added=TargetId(cluster.next_target))
            writer.put_move(moves.to_wire(move))
            stored[move.chain_id] = move
        writer.put_cluster()
        return stored

    def take_over(self, stored: Mapping[ChainId, Move], routing: Routing, *, balancing: bool) -> None:
        """These are the moves in the store, and whether disks are to be levelled, after the transaction that this
        routing is of. Telling only what it has changed would not do: when it is run again because nobody knows whether
        its first attempt was committed, it changes nothing."""
        if routing.version >= self._known_at:  # else a later transaction has been answered first
            self._known_at = routing.version
            self.moves = dict(stored)
            self.balancing = balancing

    def plan_soon(self) -> None:
        """Plan at the next step: what is wanted has changed. Nodes that were given up are tried again."""
        self._plan_at = 0.0
        self._held_up_by.clear()
        self._gave_up_at.clear()

    def _avoided(self, routing: Routing, leases: int) -> set[NodeId]:
        """The nodes whose new targets did not come up in the last so many T, for whatever reason: they would be chosen
        at once again."""
        since = self._clock.monotonic() - leases * routing.lease_s
        return {node for node, gave_up_at in self._gave_up_at.items() if gave_up_at > since}

    async def withdraw(self, writer: Writer, is_unwanted: Callable[[Move], bool]) -> dict[ChainId, Move]:
        """Take back moves, as long as their chains lose no copy by it: those that have not begun, and those whose new
        target does not serve yet. Returns all moves that there are then, for `take_over`."""
        left: dict[ChainId, Move] = {}
        for move in (await stored_moves(writer)).values():
            chain = writer.routing.chains[move.chain_id]
            if not moves.can_revert(move, chain) or not is_unwanted(move):
                left[move.chain_id] = move
            elif (back := moves.reverted(move, chain)) is None:
                writer.drop_move(move.chain_id)
            else:
                writer.put_move(moves.to_wire(back))
                left[move.chain_id] = back
        return left

    async def _withdraw_futile(self) -> None:
        """Take back the moves that will not come to an end; the next plan finds other disks."""
        routing, now = self.routing_to_judge(), self._clock.monotonic()
        offline = {move.added for move in self.moves.values() if self._is_away(move, routing)}
        # One that is offline again within T is as full as before: it has only looked what was removed.
        self._offline = lasting(self._offline, offline, now, routing.lease_s)
        futile = {move for move in self.moves.values() if self._is_futile(move, routing)}
        if not futile:
            return

        async def write(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
            return await self.withdraw(writer, futile.__contains__), writer.cluster.balancing

        (left, balancing), routing = await self._store.change(write)
        self._publisher.publish(routing)
        self.take_over(left, routing, balancing=balancing)
        self._gave_up_at |= {m.added_node: now for m in futile if routing.chains[m.chain_id].state(m.added) is not None}
        for move in futile:
            _LOG.warning("a move is taken back", chain=move.chain_id, added_node=move.added_node, removed=move.removed)

    def _is_away(self, move: Move, routing: Routing) -> bool:
        """Whether the added target is left out. One that lives and only waits for the resync of another one is not."""
        chain = routing.chains[move.chain_id]
        waits = moves.is_resyncing(chain) and self._failure_detector.could_serve(move.added, routing.lease_s)
        return moves.is_left_out(move, chain) and not waits

    def _is_futile(self, move: Move, routing: Routing) -> bool:
        chain, node = routing.chains[move.chain_id], routing.nodes.get(move.added_node)
        if not moves.can_revert(move, chain):
            return False
        if move.added and (node is None or node.draining):
            return True
        if moves.is_under_way(move, chain):
            lost_s = self._progress.stalled_s(move.added)  # writes of clients may wait for it as well
            if self._is_away(move, routing) and move.added in self._offline:
                lost_s = self._clock.monotonic() - self._offline[move.added][0]
            return lost_s >= _GIVE_UP_LEASES * routing.lease_s
        if node is None:
            return not moves.is_sensible(move, chain)
        needed_bytes = self._bytes_of(move.chain_id, routing)
        fits = self._usable_bytes(node.node_id) >= needed_bytes  # after the moves before it
        return not (fits and self._can_take(node, routing))

    async def _end_stuck(self) -> None:
        """End the moves whose target cannot leave: others have died since, or more copies are wanted by now. The next
        plan begins with what there is, and takes away what does not serve first: so a resync is waited for while it
        proceeds. The record of a move may be lost."""
        routing, now = self._publisher.routing, self._clock.monotonic()
        chains = map(routing.chains.__getitem__, stuck_chains(self._look_through(routing)[3], routing))
        stuck = [(chain.chain_id, resynced(chain, self._failure_detector.report)) for chain in chains]
        self._stuck = lasting(self._stuck, stuck, now, routing.lease_s)
        due = [each[0] for each in stuck if now - self._stuck[each][0] >= _GIVE_UP_LEASES * routing.lease_s][:_BATCH]
        if not due:
            return

        async def write(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
            for chain_id in stuck_chains(due, writer.routing):
                writer.put_chains([keep_leaving(writer.routing.chains[chain_id])])
                writer.drop_move(chain_id)
            return await stored_moves(writer), writer.cluster.balancing

        (left, balancing), routing = await self._store.change(write)
        self._publisher.publish(routing)
        self.take_over(left, routing, balancing=balancing)
        _LOG.warning("moves end before a target could leave, because its chain needs it", chains=due)

    async def _plan_next(self) -> None:
        """Plan what the plans before have left: disks that still drain, and disks that are still uneven."""
        routing = self.routing_to_judge()
        draining = moves.draining_nodes(routing)
        if not (self.balancing or draining or self._is_resizing(routing)) or self._clock.monotonic() < self._plan_at:
            return
        if self.balancing and any(self._is_awaited(node, routing) for node in routing.nodes.values()):
            return  # without it, disks would be levelled that are not all, and then no more
        self._plan_at = self._clock.monotonic() + routing.lease_s
        avoided = self._avoided(routing, _AVOIDED_LEASES)
        planned = self.plan(routing, draining, balance=self.balancing, avoided=avoided)
        if avoided and not planned:  # no other has room; disks are level without them
            planned = self.plan(routing, draining, balance=False, avoided=self._avoided(routing, _GIVE_UP_LEASES))
        self._held_up_by = set() if planned or self.moves else self._nodes_out(routing)
        if not planned and (self.moves or not self.balancing or self._held_up_by):
            return
        is_level, seen_version = self.balancing and not planned and not self.moves, routing.version
        wanted = routing.replicas, draining  # an administrator may want something else while the store sleeps

        async def write(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
            if is_level and writer.routing.version == seen_version:  # else disks may have joined, and be asked to fill
                writer.cluster.balancing = False
            is_wanted = wanted == (writer.routing.replicas, moves.draining_nodes(writer.routing))
            return await self.store_plan(planned if is_wanted else (), writer), writer.cluster.balancing

        (stored, balancing), routing = await self._store.change(write)
        self._publisher.publish(routing)
        self.take_over(stored, routing, balancing=balancing)

    # ---- removed targets

    async def _forget_removed(self) -> None:
        """Drop the records of removed targets that their nodes keep nothing of any more."""
        routing = self._publisher.routing
        removed = self._look_through(routing)[1]
        self._removed_in = {
            target.target_id: self._removed_in.get(target.target_id, routing.version) for target in removed
        }
        gone = [
            target.target_id
            for target in removed
            if self._failure_detector.has_dropped(target, self._removed_in[target.target_id], routing.lease_s)
        ]
        if not gone:
            return

        async def write(writer: Writer) -> None:
            for target_id in gone:
                writer.drop_target(target_id)

        _, routing = await self._store.change(write)
        self._publisher.publish(routing)

    def _is_resizing(self, routing: Routing) -> bool:
        return self._look_through(routing)[2]

    def _look_through(self, routing: Routing) -> _Found:
        """Once for each routing: it may have tens of thousands of targets."""
        if self._found[0] is not routing:
            removed = [target for target in routing.targets.values() if routing.is_removed(target)]
            leaving = [chain.chain_id for chain in routing.chains.values() if chain.leaving is not None]
            self._found = routing, removed, moves.has_other_replicas(routing), leaving, nodes_out(routing)
        return self._found


async def stored_moves(writer: Writer) -> dict[ChainId, Move]:
    """All moves that there are."""
    return {move.chain_id: move for move in map(moves.from_wire, await writer.moves())}
