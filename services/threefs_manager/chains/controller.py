"""Changes chains: applies the table of transitions to each chain that news of its targets may change."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterable

import structlog

from threefs.background import cancel_and_wait
from threefs.env.clock import Clock
from threefs.errors import Fenced, InvalidArgument, NotFound, StrangeStore, ThreefsError
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, Hold, LocalState, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.history import ChainHistory
from threefs_manager.chains.holds import held_out
from threefs_manager.chains.link_failures import LinkFailures
from threefs_manager.chains.move_executor import MoveExecutor, stored_moves
from threefs_manager.chains.moves import Move
from threefs_manager.chains.resync_progress import ResyncProgress
from threefs_manager.chains.steady_chains import SteadyChains
from threefs_manager.chains.transitions import Observed, accept_loss, check_unserved, must_give_way, next_chain
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.stale_stores import target_stores
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store.cluster_store import Store, Writer

_SWEEPS_PER_T = 10  # of all chains, per T
_SUSPENDED_SWEEPS = 4  # a tick that comes so many sweep intervals late means that this process did not run
_BATCH = 256  # most chains that one transaction changes
_PAUSE_S = 0.2

_LOG = structlog.get_logger()


async def _nothing() -> None:
    pass


class ChainController:
    """One per term as primary. Its task alone changes chains, one transaction after the other."""

    def __init__(
        self,
        store: Store,
        publisher: RoutingPublisher,
        failure_detector: FailureDetector,
        stale_store: StaleStoreDetector,
        *,
        clock: Clock,
        on_change: Callable[[Chain, Chain], None] = lambda before, after: None,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._followed = publisher.routing  # the last one whose changed chains were noted
        self._failure_detector = failure_detector
        self._stale_store = stale_store
        self._clock = clock
        self._on_change = on_change
        self._progress = ResyncProgress(clock)
        self.links = LinkFailures(clock)
        self.history = ChainHistory(clock)
        self.move_executor = MoveExecutor(store, publisher, self.routing_to_judge, failure_detector, clock)
        self._accepted: dict[TargetId, pb.TargetReport] = {}  # what targets had that are to serve a lost chain
        self._accepting = 0  # calls of `accept_loss` under way
        self._dirty: set[ChainId] = set()
        self._steady = SteadyChains()
        self._swept_at = self._ticked_at = clock.monotonic()
        self._saved_at = clock.monotonic()
        #: Called when the routing and the moves have been read again, because an answer about a transaction was lost.
        self.on_caught_up: Callable[[], Awaitable[None]] = _nothing
        self.failure = ""  # why the last attempt to change chains failed; empty if it did not
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()

    def enqueue(self, chains: Iterable[ChainId]) -> None:
        """Evaluate these chains soon: something is known that may change them."""
        self._dirty.update(chains)
        if self._dirty:
            self._wake.set()

    def on_process_death(self, node_id: NodeId) -> None:
        """The process of this node is dead: its targets leave the write path before a new one returns them (R8)."""
        routing = self._publisher.routing
        held = [target for target in routing.targets.values() if target.node_id == node_id]
        lost = [target for target in held if in_write_path(routing, target)]
        self._failure_detector.discard_reports(target.target_id for target in held)
        self._failure_detector.fence(target.target_id for target in lost)
        self.enqueue(target.chain_id for target in lost)

    async def wait_idle(self, timeout_s: float) -> None:
        """Wait until all chains that are queued now have been evaluated, for at most `timeout_s`."""
        if self._dirty:
            self._idle.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
            except TimeoutError:
                pass

    async def run(self, prepare: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Run until cancelled or another manager is primary; no chain is changed before `prepare` has ended, and what
        it raises is raised. Raises StrangeStore for an older copy of the store."""
        ticking = asyncio.create_task(self._tick())  # calls may judge nodes at once
        try:
            await prepare()
            self._followed = self._publisher.routing
            await self._run_repeatedly()
        finally:
            await cancel_and_wait(ticking)

    def begin_to_listen(self) -> None:
        """The silence of the time until now, in which nobody could be heard, says nothing of any node."""
        self._ticked_at = self._clock.monotonic()
        self._give_time(math.inf)

    def _give_time(self, unheard_s: float) -> None:
        self._failure_detector.on_suspension()
        self._stale_store.on_suspension(unheard_s)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            self._on_tick()

    def _on_tick(self) -> None:
        self._notice_suspension()
        self._ticked_at = self._clock.monotonic()  # not at each call: many short ones hold the loop up as well

    def _notice_suspension(self) -> None:
        """Called before nodes are judged by their silence: that of a time in which this process did not run says
        nothing. It may have been suspended while it waited for the store, too."""
        now = self._clock.monotonic()
        suspended_s = now - self._ticked_at
        if suspended_s > _SUSPENDED_SWEEPS * self._pause_s:
            self._ticked_at = now
            _LOG.warning(
                "this manager did not run for a while: every node has the whole time T again", suspended_s=suspended_s
            )
            self._give_time(suspended_s)

    def routing_to_judge(self) -> Routing:
        """The routing; its nodes may be judged by their silence now. A call may be what a process that was suspended
        meets first."""
        self._notice_suspension()
        return self._publisher.routing

    @property
    def _pause_s(self) -> float:
        return (self._publisher.routing.lease_s or _PAUSE_S) / _SWEEPS_PER_T

    async def _run_repeatedly(self) -> None:
        while True:
            try:
                await self._run_once()
                self.failure = ""
            except Fenced:
                return
            except StrangeStore:
                raise
            except ThreefsError as error:
                self.failure = error.message
                _LOG.warning("chains cannot be changed now", error=str(error))
                await self._clock.sleep(_PAUSE_S)

    async def _run_once(self) -> None:
        pause_s = self._pause_s
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
            # News that come all the time do not put the sweep off.
            sweeps = self._clock.monotonic() - self._swept_at >= pause_s
        except TimeoutError:
            sweeps = True
        self._notice_suspension()
        self._stale_store.check_fresh()
        if not self._stale_store.confirmed:
            self._wake.clear()
            return  # a node that has not reported yet may know a newer store; until then nothing is changed
        if self._store.may_be_ahead:
            await self._catch_up()
        if sweeps:
            await self._sweep()
        self._wake.clear()
        dirty, self._dirty = self._dirty, set()
        try:
            await self._evaluate(dirty)
            moved = await self.move_executor.advance()
            self._follow()
            self.enqueue(moved)
        except BaseException:
            self.enqueue(dirty)  # evaluated again at the next sweep, or sooner
            raise
        if not self._dirty:
            self._idle.set()

    async def _catch_up(self) -> None:
        """Publish what transactions have changed whose answers were lost. Those that are still on their way fail after
        this one, because each of them has read the record of the cluster."""
        self._store.may_be_ahead = False

        async def read(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
            if writer.cluster.cluster_id:
                writer.put_cluster()
            return await stored_moves(writer), writer.cluster.balancing

        try:
            (stored, balancing), routing = await self._store.change(read)
            self._publisher.publish(routing)
            self.move_executor.take_over(stored, routing, balancing=balancing)
            self._follow()
            if not self._accepting:
                self._accepted.clear()  # what was not made is not made any more
            await self.on_caught_up()
        except BaseException:
            self._store.may_be_ahead = True
            raise
        _LOG.info("the store was read again, after an answer of it was lost", routing_version=routing.version)

    def _follow(self) -> None:
        """Note the changes of chains that were published since the last call. Another transaction may have told of them
        than that which has made them, if the answer about that one was lost."""
        before, self._followed = self._followed, self._publisher.routing
        if self._followed.chains is before.chains:
            return
        assert before.version <= self._followed.version, "I5: no older routing takes the place of a newer one"
        for chain_id, after in self._followed.chains.items():
            known = before.chains.get(chain_id)
            if known is None or known is after:
                continue
            assert known.version <= after.version, "I5: the version of a chain only rises"
            if known.version < after.version:
                _LOG.info("chain changed", chain=chain_id, version=after.version, members=_format_members(after))
                self._accept_stores(after)
                self.links.on_change(known, after)
                self.history.add(after)
                self._on_change(known, after)

    def _accept_stores(self, after: Chain) -> None:
        """Only now: as long as the chain has not changed, an older copy of a disk must not serve."""
        for target in after.serving:
            if (report := self._accepted.pop(target, None)) is not None:
                self._failure_detector.generations.reset(report)

    async def _sweep(self) -> None:
        """Find what no event tells of, above all silences."""
        await self._drop_silent_meta_services()
        await self._save_generations()
        routing, detector = self._publisher.routing, self._failure_detector
        silent = detector.silent_targets(routing.lease_s)
        links_fail = bool(detector.unreachable_peers(routing.lease_s)) or self.links.was_reported
        self._dirty.update(self._steady.to_sweep(routing, silent, links_fail=links_fail))
        self._swept_at = self._clock.monotonic()

    async def _drop_silent_meta_services(self) -> None:
        """Remove meta services that were silent for T from the routing, so that clients are not sent to them.

        One that comes back registers again. Each start at another port makes a new node, so old ones would pile up.
        """
        routing = self.routing_to_judge()  # it may have been suspended while it read the store
        gone = {
            node.node_id: node.incarnation
            for node in routing.nodes.values()
            if node.kind is NodeKind.META and self._failure_detector.is_silent(node.node_id, routing.lease_s)
        }
        if not gone:
            return

        async def write(writer: Writer) -> None:
            for node_id, incarnation in gone.items():
                node = writer.routing.nodes.get(node_id)
                if node is not None and node.incarnation == incarnation:
                    writer.drop_node(node_id)

        _, routing = await self._store.change(write)
        self._publisher.publish(routing)
        _LOG.info("silent meta services were removed", nodes=sorted(gone))

    async def _evaluate(self, dirty: Iterable[ChainId]) -> None:
        routing = self._publisher.routing
        self._notice_suspension()
        self._follow()
        # Not only after the transaction that has put them out: if its answer was lost, another one may publish it.
        self._failure_detector.unfence(routing)
        changes: list[Chain] = []
        minimums = routing.minimums()
        self.links.update(routing, self._failure_detector.unreachable_peers(routing.lease_s))
        for chain_id in sorted(dirty):
            chain = routing.chains.get(chain_id)
            if chain is None:
                continue
            known = self._observe(chain, routing)
            source = self._failure_detector.report(chain.tail) if chain.tail is not None else None
            stalled = self._progress.stalled_target(chain, known, source, routing.lease_s)
            removed = self.links.target_to_remove(chain, known)
            minimum = minimums.get(chain_id, 1)
            leaving = chain.leaving if must_give_way(chain, minimum) else None
            held = next((m.target_id for m in chain.members if routing.yields(m.target_id, chain, minimum)), None)
            yielding = next((target for target in (leaving, held, removed, stalled) if target is not None), None)
            self._failure_detector.withhold_lease(chain, yielding)
            self._steady.on_evaluation(chain, routing, known, yielding)
            if next_chain(chain, known) is not chain:
                changes.append(chain)
        for first in range(0, len(changes), _BATCH):
            await self._apply(changes[first : first + _BATCH])

    def _observe(self, chain: Chain, routing: Routing) -> Observed:
        """The word for each member. A target that is out, lives, and has no link with the tail or is held by an
        administrator counts as unknown: it stays out."""
        known = self._failure_detector.evaluate(chain, routing, routing.lease_s)
        for target in (*self.links.held_targets(chain), *held_out(chain, routing)):
            if known[target] is not LocalState.OFFLINE:
                known[target] = None
        return known

    async def accept_loss(self, request: pb.AcceptLossRequest) -> Chain:
        """An administrator lets one target serve a lost chain with what it has. Raises NotFound, InvalidArgument."""
        chain_id, chosen = ChainId(request.chain_id), TargetId(request.target_id)
        routing = self.routing_to_judge()
        if chain_id not in routing.chains:
            raise NotFound(f"chain {chain_id} does not exist; `threefs status` lists the chains")
        if request.dry_run:
            return self._without_lost(routing.chains[chain_id], routing, request)

        attempted: list[tuple[Chain, Chain]] = []

        async def write(writer: Writer) -> tuple[Chain, Chain]:
            self._notice_suspension()
            chain = writer.routing.chains[chain_id]
            if attempted and (chain == attempted[-1][1] or self.history.has(attempted[-1][1])):
                return attempted[-1]  # an earlier attempt of unknown outcome has done it
            after = self._without_lost(chain, routing, request)
            report = self._failure_detector.report(chosen)
            assert not chain.serving, "R7: nothing is given up of a chain that is served"
            assert report is not None, "a target that could serve has reported"
            target = dataclasses.replace(routing.targets[chosen], store_id=report.store_id, hold=Hold.NONE)
            writer.put_chains([after], [target])
            writer.put_generation(target_stores.seen_in(report))
            self._accepted[chosen] = report
            attempted.append((chain, after))
            return chain, after

        self._accepting += 1
        try:
            (_, after), routing = await self._store.change(write)
        finally:
            self._accepting -= 1
        self._publisher.publish(routing)
        self._follow()
        _LOG.warning(
            "an administrator accepted the loss of a chain's last targets",
            chain=chain_id,
            version=after.version,
            members=_format_members(after),
        )
        return after

    def _without_lost(self, chain: Chain, routing: Routing, request: pb.AcceptLossRequest) -> Chain:
        """The chain as the chosen target serves it. Raises InvalidArgument."""
        if chain.version != request.chain_version:
            raise InvalidArgument(
                f"chain {chain.chain_id} has changed: its version is {chain.version}, not {request.chain_version}; "
                "look at it again with `threefs status`"
            )
        check_unserved(chain)  # before the members are evaluated, which fences those that are silent
        known = self._failure_detector.evaluate(chain, routing, routing.lease_s)
        alive = {t for t in known if self._failure_detector.could_serve(t, routing.lease_s)}
        return accept_loss(chain, TargetId(request.target_id), known, alive)

    async def _apply(self, changes: list[Chain]) -> None:
        async def write(writer: Writer) -> None:
            self._notice_suspension()
            for evaluated in changes:
                chain = writer.routing.chains[evaluated.chain_id]
                if chain.version != evaluated.version:
                    continue  # an earlier attempt of unknown outcome has done it
                # Anew in each attempt: a target that lived may have come back without its disk while the store slept.
                after = next_chain(chain, self._observe(chain, writer.routing))
                if after is chain:
                    continue
                writer.put_chains([after])
                for target in self._changed_targets(writer.routing, chain, after):
                    writer.put_target(target)
                for seen in self._generations_to_save(chain, after):
                    writer.put_generation(seen)

        _, routing = await self._store.change(write)
        self._publisher.publish(routing)
        self._failure_detector.unfence(routing)
        self._follow()

    def _generations_to_save(self, before: Chain, after: Chain) -> list[pb.SeenStore]:
        """Records to store with the change: how far the stores of new lastsrv targets are, because one of them may
        serve alone, and of new syncing targets, because they are filled anew."""
        generations = self._failure_detector.generations
        found = []
        for member in after.members:
            if member.state is before.state(member.target_id):
                continue
            report = self._failure_detector.report(member.target_id)
            if member.state is PublicState.SYNCING and report is not None:
                generations.reset(report)
            elif member.state is not PublicState.LASTSRV:
                continue
            seen = generations.newest(member.target_id)
            if seen is not None:
                found.append(seen)
        return found

    async def _save_generations(self) -> None:
        now = self._clock.monotonic()
        if now - self._saved_at < self._publisher.routing.lease_s:
            return
        self._saved_at = now
        unsaved = self._failure_detector.generations.drain_unsaved()
        for first in range(0, len(unsaved), _BATCH):
            try:
                await self._store.save_generations(unsaved[first : first + _BATCH])
            except BaseException:
                self._failure_detector.generations.restore_unsaved(unsaved[first:])
                raise

    def _refilled_targets(self, before: Chain, after: Chain) -> list[Target]:
        """Targets that begin to sync with another store than before: it is filled anew, and is theirs from now on. And
        those that begin to serve a new chain: what they keep from now on is known by this store."""
        targets = self._publisher.routing.targets
        refilled = []
        for member in after.members:
            known, was = targets[member.target_id], before.state(member.target_id)
            begins = member.state is PublicState.SYNCING and was is not PublicState.SYNCING
            if begins or (member.state is PublicState.SERVING and not known.store_id):
                report = self._failure_detector.report(member.target_id)
                if report is not None and report.store_id != known.store_id:
                    refilled.append(dataclasses.replace(known, store_id=report.store_id))
        return refilled

    def _changed_targets(self, routing: Routing, before: Chain, after: Chain) -> list[Target]:
        """The targets that change with the chain: their stores, and a rotation that is done or void."""
        stores = {target.target_id: target.store_id for target in self._refilled_targets(before, after)}
        changed = []
        for member in after.members:
            stored = routing.targets.get(member.target_id)
            if stored is None:
                continue
            updated = dataclasses.replace(
                stored,
                store_id=stores.get(member.target_id, stored.store_id),
                hold=Hold.NONE if stored.hold is Hold.ROTATE else stored.hold,
            )
            if updated != stored:
                changed.append(updated)
        return changed


def in_write_path(routing: Routing, target: Target) -> bool:
    state = routing.chains[target.chain_id].state(TargetId(target.target_id))
    return state in (PublicState.SERVING, PublicState.SYNCING)


def _format_members(chain: Chain) -> str:
    return " ".join(f"{member.target_id}:{member.state.name.lower()}" for member in chain.members)
