"""The routing of a cluster and its configuration, kept up to date by a long poll at a manager."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from threefs import configuration, routing_changes
from threefs import routing as routing_module
from threefs.background import BackgroundTasks
from threefs.backoff import Backoff
from threefs.cluster.manager_client import STRANGE, call_manager
from threefs.configuration import NOTHING_SET, Configuration
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import NotServing, Retry, StrangeStore, ThreefsError, Unavailable, WrongCluster
from threefs.ids import TableId
from threefs.routing import EMPTY, Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import GET_ROUTING
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import manager_pb2 as pb

MAX_POLL_MS = 20_000
_POLLS_PER_T = 5  # a manager that is cut off is noticed before a lease ends
_ANSWER_S = 0.5  # beyond the time that the poll itself may take, at least
_BACKOFF = Backoff(0.05, 1.0)
_START_PAUSE_S = 0.1
_START_ATTEMPT_S = 2.0  # of one manager, which may be gone without a word

_LOG = LibraryLogger(__name__)


async def _nowhere(routing: Routing) -> None:
    pass


def _ignore(newest: Configuration) -> None:
    pass


def _no_client() -> None:
    return None


class RoutingSource(Protocol):
    """The part of a `RoutingWatcher` that callers need to retry."""

    @property
    def routing(self) -> Routing: ...

    async def refresh(self, newer_than: int, timeout_s: float) -> Routing: ...

    def on_change(self, callback: Callable[[Routing], None]) -> None: ...


async def pause(source: RoutingSource, version: int, pause_s: float, clock: Clock) -> None:
    """Wait `pause_s` before the next attempt, or until routing newer than `version` comes in: most errors mean that a
    chain has changed, or will soon."""
    if pause_s <= 0:
        return
    until = clock.monotonic() + pause_s
    with contextlib.suppress(ThreefsError):  # no manager answers; the routing at hand may still be right
        await source.refresh(version, pause_s)
    rest_s = until - clock.monotonic()
    if source.routing.version <= version and rest_s > 0:
        await clock.sleep(rest_s)


async def await_table(source: RoutingSource, table_id: TableId, timeout_s: float, clock: Clock) -> None:
    """Wait until the routing has a chain table: a file may lie on one that is newer than the routing at hand. Raises
    NotServing."""
    deadline = clock.monotonic() + timeout_s
    while table_id not in source.routing.tables:
        left_s = deadline - clock.monotonic()
        if left_s <= 0:
            raise NotServing(f"chain table {table_id} is not in the routing after {timeout_s:g} s")
        await source.refresh(source.routing.version, left_s)


class _Refused(Exception):
    """This process does not take the snapshot. Managers answer with errors of the same kind, and those may pass."""

    def __init__(self, error: StrangeStore) -> None:
        super().__init__(str(error))
        self.error = error


class RoutingWatcher:
    """Follows the manager that answers as primary. `routing` is always a whole snapshot, and its version only rises."""

    def __init__(
        self, peers: ConnectionPool, manager_addresses: Sequence[str], *, clock: Clock = CLOCK, random: Random = RANDOM
    ) -> None:
        self.routing: Routing = EMPTY
        self.configuration: Configuration = NOTHING_SET
        self.on_configuration: Callable[[Configuration], None] = _ignore  # called with each newer one
        #: What a client says of itself with each poll; nodes say it with their heartbeats.
        self.client_report: Callable[[], pb.ClientReport | None] = _no_client
        #: Is waited for with every new snapshot before it becomes `routing`. A StrangeStore that it raises ends the
        #: following, so a service that cannot take the routing of its manager ends. It must raise nothing else.
        self.keep: Callable[[Routing], Awaitable[None]] = _nowhere
        self._peers = peers
        self._addresses = tuple(manager_addresses)
        self._last = 0  # which of them answered
        self._term = 0  # of the manager that has said `routing`; 0: the next answer must be a whole snapshot
        self._clock = clock
        self._random = random
        self._changed = asyncio.Event()
        self._callbacks: list[Callable[[Routing], None]] = []
        self._background = BackgroundTasks()

    @property
    def manager(self) -> str:
        """The address of the manager that answered last."""
        return self._addresses[self._last]

    async def start(self, timeout_s: float) -> None:
        """Wait for the first snapshot. Raises Unavailable, which says what to start, or why no manager took us."""
        deadline = self._clock.monotonic() + timeout_s
        while not self.routing.version:
            failure = (
                f"the manager at {', '.join(self._addresses)} has no plan yet; `threefs up` or `init` gives it one"
            )
            try:
                await self._poll_any(0, min(_START_ATTEMPT_S, max(0.1, deadline - self._clock.monotonic())))
            except Unavailable as error:
                failure = (
                    f"no cluster answers at {', '.join(self._addresses)} ({error}); "
                    "`threefs up` starts one on this machine"
                )
            if not self.routing.version:
                if self._clock.monotonic() + _START_PAUSE_S > deadline:
                    raise Unavailable(failure)
                await self._clock.sleep(_START_PAUSE_S)
        self._background.start("following of the routing", self._follow())

    async def refresh(self, newer_than: int, timeout_s: float) -> Routing:
        """Wait until the snapshot is newer than that version, at most `timeout_s`; the newest there is."""
        await asyncio.sleep(0)  # a coroutine that was started eagerly gets its task here, which the timeout needs
        try:
            async with asyncio.timeout(timeout_s):
                while self.routing.version <= newer_than:
                    changed = self._changed
                    await changed.wait()
        except TimeoutError:
            pass
        return self.routing

    def on_change(self, callback: Callable[[Routing], None]) -> None:
        """Call back with every new snapshot, in the step in which it becomes `routing`."""
        self._callbacks.append(callback)

    async def close(self) -> None:
        await self._background.stop()

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                wait_ms = min(MAX_POLL_MS, self.routing.lease_ms // _POLLS_PER_T or MAX_POLL_MS)
                await self._poll_any(wait_ms, wait_ms / 1000 + max(_ANSWER_S, self.routing.lease_s / _POLLS_PER_T))
                failures = 0
                continue
            except _Refused as refused:
                raise refused.error from None
            except ThreefsError as error:
                _LOG.info("routing cannot be followed now", error=str(error))
            except Exception:  # a snapshot that cannot be read must not end the following without a word
                _LOG.exception("routing cannot be followed")
            await self._clock.sleep(_BACKOFF.pause_s(failures, self._random))
            failures += 1

    async def _poll_any(self, wait_ms: int, timeout_s: float) -> None:
        request = pb.GetRoutingRequest(
            known_version=self.routing.version,
            wait_ms=wait_ms,
            known_configuration=self.configuration.made_ns,
            known_term=self._term,
            client=self.client_report(),
        )
        failure: ThreefsError = Unavailable("no manager address is known")
        for turn in range(len(self._addresses)):
            number = (self._last + turn) % len(self._addresses)
            address = self._addresses[number]
            try:
                reply = await call_manager(self._peers, address, GET_ROUTING, request, timeout_s=timeout_s)
                await self._take(address, reply)
            except ThreefsError as error:
                if not turn or not isinstance(error, STRANGE):  # it says nothing of the managers that were asked before
                    failure = error
                continue
            self._last = number
            return
        if failure.retry is not Retry.NEVER:  # nobody answers, or nobody is primary just now
            raise Unavailable(str(failure))
        raise failure

    async def _take(self, address: str, reply: pb.GetRoutingReply) -> None:
        """The routing first: a manager whose routing is not taken has no say about the configuration either. Raises
        Unavailable, WrongCluster."""
        if reply.HasField("routing"):
            await self._adopt(address, routing_module.from_wire(reply.routing))
            self._term = reply.term
        elif reply.HasField("changes"):
            await self._adopt(address, self._later(address, reply))
        if reply.HasField("configuration"):
            self.configuration = configuration.from_wire(reply.configuration)
            self.on_configuration(self.configuration)

    def _later(self, address: str, reply: pb.GetRoutingReply) -> Routing:
        """The snapshot after the changes of an answer. Raises Unavailable for changes of another one than ours, after
        which the whole is asked for."""
        changes = routing_changes.from_wire(reply.changes)
        if reply.term != self._term or changes.base_version != self.routing.version:
            self._term = 0
            raise Unavailable(
                f"the manager at {address} has sent the changes since routing {changes.base_version}; "
                f"{self.routing.version} is known here"
            )
        return changes.applied_to(self.routing)

    async def _adopt(self, address: str, routing: Routing) -> None:
        known = self.routing
        if known.cluster_id and routing.cluster_id != known.cluster_id:
            other = routing.cluster_id or "none yet"
            raise WrongCluster(f"the manager at {address} now speaks for cluster {other}, not {known.cluster_id}")
        if routing.version <= known.version:
            raise Unavailable(f"the manager at {address} knows routing {routing.version}, older than {known.version}")
        try:
            await self.keep(routing)
        except StrangeStore as error:
            raise _Refused(error) from None
        self.routing = routing
        self._check_connections(known)
        if not self._peers.identity.cluster_id:
            self._peers.identity = dataclasses.replace(self._peers.identity, cluster_id=routing.cluster_id)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for callback in self._callbacks:
            try:
                callback(routing)
            except Exception:  # it is the callback's fault; the others still want to know
                _LOG.exception("a callback failed on new routing", version=routing.version)

    def _check_connections(self, known: Routing) -> None:
        """A process that was started anew may have lost its connections without a word, with the power of its
        machine."""
        timeout_s = max(_ANSWER_S, self.routing.lease_s / _POLLS_PER_T)
        for node_id, node in self.routing.nodes.items():
            before = known.nodes.get(node_id)
            if before is not None and before.address and before.incarnation != node.incarnation:
                self._background.attempt(
                    f"check of the connections to node {node_id}", self._peers.check(before.address, timeout_s)
                )
