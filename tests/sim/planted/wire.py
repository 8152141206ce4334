"""The client and the wire: identities, budgets, routing, what an error says, where bytes land."""

from typing import Any

from threefs_client.data import read_plans
from threefs_storage.chain import writes as storage_writes

from tests.sim.planted.registry import plant, plant_for, put
from threefs.byte_budget import ByteBudget
from threefs.cluster import chunk_client as chunks_module
from threefs.cluster import write_coalescer
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.manager_client import ManagerClient
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.cluster.write_coalescer import WriteCoalescer
from threefs.errors import ThreefsError
from threefs.routing import Routing
from threefs.rpc.client_connection import ClientConnection
from threefs.rpc.send_queue import Outgoing
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2

_Row: Any = chunks_module._Row
_SHARED = "unit/threefs/cluster/test_write_coalescer.py"


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


@plant_for(f"{_SHARED}::test_writes_of_one_turn_share_a_message_and_each_has_its_own_result")
def results_of_a_shared_message_in_another_order() -> None:
    """The results of writes that share a message are given to the wrong callers."""
    send = WriteCoalescer._send_calls

    async def turned(self: WriteCoalescer, address: str, requests: list[Any]) -> list[Any]:
        outcomes = await send(self, address, requests)
        return [*outcomes[1:], outcomes[0]]

    put(WriteCoalescer, "_send_calls", turned)


@plant_for(f"{_SHARED}::test_a_slow_chain_holds_up_no_other")
def a_shared_message_waits_for_its_slowest_chain() -> None:
    """One chain that is slow holds up the writes of all others."""
    put(write_coalescer, "_ANSWER_AFTER_MS", 0)


@plant_for(
    "contract/test_buffer_ownership.py::test_a_batch_that_is_answered_early_keeps_its_payload_and_a_repeat_gets_the_result"
)
def writes_in_progress_are_answered_as_done() -> None:
    """A write that goes on counts as acknowledged."""
    put(storage_writes, "_IN_PROGRESS", storage_pb2.ChunkWriteResult(version=1))


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


@plant_for(
    "contract/test_memory_bounds.py::test_a_write_that_breaks_off_in_its_last_segment_leaves_nothing[1000-False]"
)
def payload_counts_before_it_has_come() -> None:
    """I20: a payload counts as received from the header of its last segment on, so nobody waits for the rest."""
    put(Call, "complete", property(lambda self: self._placed == len(self.payload)))


@plant_for("contract/test_buffer_ownership.py::test_what_is_shipped_may_be_cancelled_while_the_successor_takes_nothing")
def payload_of_ended_calls_is_sent() -> None:
    """I14: a connection sends on from the buffer of a call that has ended."""
    init = Outgoing.__init__

    def unowned(self: Outgoing, *args: Any) -> None:
        init(self, *args)
        self.owner = None

    put(Outgoing, "__init__", unowned)
