"""Request-to-send, and the bounds of what a process holds for its peers."""

import os
from typing import Any

from threefs_client.data.grants import Announced, Grants
from threefs_client.data.read_plans import ReadPlan
from threefs_client.data.reads import Reader

from tests.sim.host_slots import SlotsOfProcess
from tests.sim.planted.registry import plant, plant_for, put
from threefs.env.host_slots import HostSlots, OwnSlots
from threefs.receive_budget import ReceiveBudget
from threefs.rpc import server_connection
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.held_answers import HeldOfConnection
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call, ServerConnection
from threefs.sender_limit import SenderLimit

_HELD = "unit/threefs/rpc/test_held_answers.py"
_BUDGET = "unit/threefs/test_receive_budget.py"
_GRANTS = "unit/client/threefs_client/data/test_grants.py"


@plant
def room_of_cancelled_reads_is_lost() -> None:
    """I20: a read that is given up after its grant keeps its room."""
    release = Reader._release

    def forgetful(self: Reader, plan: ReadPlan, call: Any) -> None:
        grants, self._grants = self._grants, None if call.cancelled() else self._grants
        release(self, plan, call)
        self._grants = grants

    put(Reader, "_release", forgetful)


@plant
def answer_that_is_not_wanted_stays_in_line() -> None:
    """I20: a read that is given up while its answer waits is granted all the same, and nobody gives its room back."""

    def end(self: Announced) -> None:
        if self._taken:
            self._grants.end(self.sender, self.size)

    put(Announced, "end", end)


@plant
def slots_of_the_dead_are_kept() -> None:
    """I20: a process that is killed keeps its slots."""
    put(SlotsOfProcess, "_end", lambda self: None)
    put(Grants, "_overdraw", lambda self: None)


@plant_for("unit/threefs/env/test_host_slots.py::test_slots_of_a_killed_process_are_free_at_once")
def slots_are_noted_in_a_file() -> None:
    """I20: that a slot is taken is written down, and a process that is killed does not take it back."""

    def lock(self: HostSlots, slot: int) -> bool:
        if os.pread(self._fd, 1, 100 + slot) == b"x":
            return False
        os.pwrite(self._fd, b"x", 100 + slot)
        return True

    put(HostSlots, "_lock", lock)


@plant
def whoever_hangs_stops_all_others() -> None:
    """I20: a process without slots waits for them for as long as others have them."""
    put(Grants, "_overdraw", lambda self: None)


@plant_for(f"{_HELD}::test_an_answer_comes_after_its_grant_and_not_before")
def answers_wait_for_no_grant() -> None:
    """A service announces its answer, and sends it at once."""
    hold = Call._hold

    def eager(self: Call[Any, Any], *arguments: Any) -> None:
        hold(self, *arguments)
        self._connection.held.grant(self.call_id)

    put(Call, "_hold", eager)


@plant_for(f"{_HELD}::test_an_answer_to_a_cancelled_call_is_given_up[cancel]")
def announced_answer_outlives_its_call() -> None:
    """I20: what a cancelled call has read stays in memory."""
    put(HeldOfConnection, "cancel", lambda self, call_id: False)


@plant_for(f"{_HELD}::test_an_answer_without_a_grant_in_time_is_dropped_and_its_caller_reads_so")
def answers_wait_for_ever() -> None:
    """I20: a peer that grants nothing keeps the memory of its answers."""
    put(HeldOfConnection, "expire", lambda self, now: None)


@plant_for(f"{_HELD}::test_waiting_answers_are_bounded_and_further_calls_are_throttled")
def answers_that_wait_have_no_bound() -> None:
    """I20: whoever asks for much and grants nothing fills the memory of a service."""

    def reserve(self: HeldOfConnection, size: int, most_bytes: int) -> None:
        self._all.bytes += size
        self._bytes += size

    put(HeldOfConnection, "reserve", reserve)


@plant_for(f"{_HELD}::test_more_answers_wait_than_a_connection_may_have_queued_and_their_grants_are_heard")
def announced_answers_count_as_queued() -> None:
    """I13: a service does not read the grants of a peer that it waits for."""
    hold = Call._hold

    def counted(self: Call[Any, Any], *arguments: Any) -> None:
        reserved, self._reserved = self._reserved, 0
        hold(self, *arguments)
        self._reserved = reserved

    put(Call, "_hold", counted)


@plant_for(f"{_BUDGET}::test_a_sender_that_sends_already_does_not_keep_its_slot_from_the_next_one")
def senders_do_not_take_turns() -> None:
    """A service that sends keeps its place for as long as it has more to send."""
    following = ReceiveBudget.next

    def greedy(self: ReceiveBudget[Any]) -> Any:
        for sender in [sender for sender in self._waiting if sender in self._senders]:
            queue = self._waiting.pop(sender)
            self._waiting = {sender: queue, **self._waiting}
        return following(self)

    put(ReceiveBudget, "next", greedy)


@plant_for(f"{_GRANTS}::test_processes_of_a_host_share_its_slots")
def slots_are_never_given_to_others() -> None:
    """A process that has work keeps all slots of its host."""
    put(OwnSlots, "wanted_by_others", lambda self, who: False)


@plant_for("unit/threefs/test_sender_limit.py::test_an_answer_that_stalls_halves_the_limit_once_in_a_while")
def stalls_change_nothing() -> None:
    """The number of senders stays where packets are lost."""
    put(SenderLimit, "_cut", lambda self, now: None)


@plant_for("sim/test_visitors.py::test_bounds_are_reached_and_nothing_is_lost")
def connections_are_counted_for_ever() -> None:
    """I20: a connection that has ended takes the place of another one."""

    def connection_ended(self: Server, connection: ServerConnection) -> None:
        self._unidentified.pop(connection, None)
        connection.counters.discard(connection)
        self.call_ended()

    put(Server, "connection_ended", connection_ended)


@plant_for("contract/test_hostile_peers.py::test_mischief_of_one_leaves_nothing_and_others_are_served")
def requests_of_lost_connections_are_counted_for_ever() -> None:
    """I20: the memory of requests is counted as taken after their connection has ended."""
    count = ServerConnection._count

    def lossy(self: ServerConnection, size: int) -> None:
        if size > 0 or not self.stream.closed:
            count(self, size)

    put(ServerConnection, "_count", lossy)


@plant_for("sim/test_visitors.py::test_bounds_are_reached_and_nothing_is_lost")
def one_connection_too_many_is_final() -> None:
    """A client that a service refused for load does not try again."""
    opened = ConnectionPool._open

    async def once(self: ConnectionPool, address: str, *more: Any) -> Any:
        refused: dict[str, BaseException] = self.__dict__.setdefault("_refused", {})
        if address in refused:
            raise refused[address]
        try:
            return await opened(self, address, *more)
        except BaseException as error:
            refused[address] = error
            raise

    put(ConnectionPool, "_open", once)


@plant_for(f"{_HELD}::test_small_answers_and_errors_need_no_grant")
def every_answer_waits_for_a_grant() -> None:
    """Errors and small answers wait as well, and nobody has a grant for them."""
    put(server_connection, "UNGRANTED_BYTES", -1)
