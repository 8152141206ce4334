"""The client and the wire: identities, budgets, routing, what an error says, where bytes land."""

from typing import Any

from threefs_client.data import read_plans

from tests.sim.planted.registry import plant, plant_for, put
from threefs.byte_budget import ByteBudget
from threefs.cluster import chunk_client as chunks_module
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.manager_client import ManagerClient
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.errors import ThreefsError
from threefs.routing import Routing
from threefs.rpc.client_connection import ClientConnection

_Row: Any = chunks_module._Row


@plant
def every_attempt_is_another_write() -> None:
    """I6: a write that is sent again has a new identity."""
    request = ChunkClient._request

    def renamed(self: ChunkClient, routing: Any, rows: Any) -> Any:
        for row in rows:
            self._seq += 1
            row.seq = self._seq
        return request(self, routing, rows)

    put(ChunkClient, "_request", renamed)


@plant
def identities_of_all_clients_are_one() -> None:
    """I6: two clients count their writes under the same identity."""
    init = ChunkClient.__init__

    def same(self: ChunkClient, calls: Any, cluster: Any, client: Any, **more: Any) -> None:
        init(self, calls, cluster, client, **more)
        self._client = b"\1" * 16

    put(ChunkClient, "__init__", same)


@plant
def unknown_is_told_as_failed() -> None:
    """An error after an attempt of which nothing is known says that there was no effect."""
    failed = _Row.failed

    def certain(self: Any, error: ThreefsError) -> None:
        failed(self, error)
        self.unsure = False

    put(_Row, "failed", certain)


@plant
def unknown_is_told_as_done() -> None:
    """A write whose time is over counts as done."""

    def give_up(self: Any) -> None:
        self.done(chunks_module.Applied(1, 0))

    put(_Row, "give_up", give_up)


@plant
def changes_of_a_chunk_overtake_each_other() -> None:
    """Two changes of one chunk by one client are under way at once."""

    def lock(self: ChunkClient, rows: Any) -> Any:
        for row in rows:
            self._seq += 1
            row.seq = self._seq
        return rows, []

    put(ChunkClient, "_lock_chunks", lock)
    put(ChunkClient, "_unlock_chunks", lambda self, rows: None)


@plant
def results_in_another_order() -> None:
    """The answers to the rows of a request are given to the wrong rows."""
    send = ChunkClient._send

    async def turned(self: ChunkClient, routing: Any, address: str, rows: Any, deadline: float) -> None:
        await send(self, routing, address, rows, deadline)
        if len(rows) > 1:
            ends = [(row.error, row.again, row.applied) for row in rows]
            for row, (error, again, applied) in zip(rows, [*ends[1:], ends[0]], strict=True):
                row.error, row.again, row.applied = error, again, applied

    put(ChunkClient, "_send", turned)


@plant
def payloads_in_another_order() -> None:
    """The service takes the payload of one row for that of another one of the same size."""
    request = ChunkClient._request

    def turned(self: ChunkClient, routing: Any, rows: Any) -> Any:
        message = request(self, routing, rows)
        for first, second in zip(message.writes, list(message.writes)[1:], strict=False):
            if first.kind == second.kind and first.target == second.target:
                first.offset, second.offset = second.offset, first.offset
        return message

    put(ChunkClient, "_request", turned)


@plant
def budget_leaks() -> None:
    """I20: bytes in flight are counted for ever when a call fails."""
    send = ChunkClient._send

    async def leaking(self: ChunkClient, routing: Any, address: str, rows: Any, deadline: float) -> None:
        await send(self, routing, address, rows, deadline)
        if any(row.error is not None for row in rows):
            self._budget._used += sum(len(row.update.payload) for row in rows)

    put(ChunkClient, "_send", leaking)


@plant
def budget_not_given_to_those_who_wait() -> None:
    """Whoever waits for room among the bytes in flight waits for ever."""
    give = ByteBudget.give

    def silent(self: ByteBudget, size: int) -> None:
        self._waiting, waiting = type(self._waiting)(), self._waiting
        give(self, size)
        self._waiting = waiting

    put(ByteBudget, "give", silent)


@plant_for(
    "unit/threefs/cluster/test_routing_watcher.py::test_an_older_or_foreign_snapshot_is_not_taken_nor_asked_for_without_pause"
)
def routing_goes_back() -> None:
    """A snapshot that is older than the one at hand is taken over."""

    def take(self: RoutingWatcher, address: str, routing: Routing) -> None:
        self.routing = routing
        changed, self._changed = self._changed, type(self._changed)()
        changed.set()
        for callback in self._callbacks:
            callback(routing)

    put(RoutingWatcher, "_adopt", take)


@plant
def only_the_first_manager_is_asked() -> None:
    """When the primary is another one, nobody finds it."""
    init = ManagerClient.__init__
    put(ManagerClient, "__init__", lambda self, callers: init(self, callers[:1]))


@plant
def routing_is_not_followed() -> None:
    """I13: after an error of the manager a process stays with the routing that it has."""

    async def follow(self: RoutingWatcher) -> None:
        while True:
            await self._poll_any(1000, 3.0)

    put(RoutingWatcher, "_follow", follow)


@plant
def failed_rows_read_as_zeros() -> None:
    """I12: a row of a read that failed is filled with zeros."""
    settle = read_plans.settle

    def careless(plan: Any, reply: Any, results: Any, verify: bool) -> Any:
        failed = settle(plan, reply, results, verify)
        for row, _ in failed:
            place = results[row[6]]
            if isinstance(place, memoryview):
                place[:] = bytes(len(place))
        return []

    put(read_plans, "settle", careless)


@plant
def deadlines_do_not_pass() -> None:
    """I13: a call waits for its answer for as long as the connection lives."""
    call = ClientConnection.call

    def patient(self: ClientConnection, method: Any, request: Any, *, timeout_s: float, **more: Any) -> Any:
        return call(self, method, request, timeout_s=max(timeout_s, 1e6), **more)

    put(ClientConnection, "call", patient)
