"""What a turn of the event loop begins for one process goes there in one message; its answer comes to each row."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest
from threefs_storage.chain import shared_messages
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.peer_targets import PeerTargets

from tests.harness.simulated.loop import SimLoop
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import (
    ConnectionIdle,
    ConnectionLost,
    DeadlineExceeded,
    InProgress,
    NotStaged,
    ProtocolError,
    ThreefsError,
    Unavailable,
    VersionGap,
)
from threefs.ids import TargetId
from threefs.rpc.methods import FORWARD_STAGED, FORWARD_VERSIONS, STAGE_AHEAD
from threefs.wire import storage_pb2 as pb

T = TypeVar("T")
PEER, OTHER = TargetId(201), TargetId(202)  # of one process
DONE = pb.ChunkWriteResult(version=2)


@dataclass
class Message:
    method: Any
    request: Any
    hops: int
    answer: "asyncio.Future[Any]"
    payload: list[bytes] = field(default_factory=list)
    sent: Callable[[], None] | None = None

    def reply(self, *results: pb.ChunkWriteResult) -> None:
        self.answer.set_result(self.method.reply(results=results))


class Peers:
    """A peer whose answers the test gives. What is forwarded alone is done at once."""

    def __init__(self) -> None:
        self.room = True  # as it looks when a change begins
        self.takes = True  # messages at the end of the turn
        self.messages: list[Message] = []
        self.alone: list[tuple[int, float]] = []  # the version, and how much time is left for it
        self.unanswered: list[TargetId] = []  # calls that have failed

    def address_of(self, target: TargetId) -> str:
        return "h2:1"

    def has_room(self, *_: object) -> bool:
        return self.room

    def begin_optional(
        self,
        address: str,
        method: Any,
        request: Any,
        *,
        feature: int,
        timeout_s: float,
        hops: int,
        payload: Any = (),
        sent: Any = None,
    ) -> "asyncio.Future[Any] | None":
        if not self.takes:
            return None
        message = Message(method, request, hops, asyncio.get_running_loop().create_future(), list(payload), sent)
        self.messages.append(message)
        return message.answer

    async def observe(self, target: TargetId, call: Awaitable[T]) -> T:
        try:
            return await call
        except ThreefsError:
            self.unanswered.append(target)
            raise

    async def call(self, target: TargetId, method: Any, request: Any, *, timeout_s: float, hops: int) -> Any:
        assert method is FORWARD_STAGED
        self.alone.append((request.version, timeout_s))
        return pb.ChunkWriteResult(version=request.version)


class Bench:
    def __init__(self) -> None:
        self.peers = Peers()
        self.messages = SharedMessages(cast(PeerTargets, self.peers), clock=LOOP_CLOCK)

    def ahead(
        self, payload: bytes = b"x", hops: int = 0, sent: Callable[[], None] = lambda: None
    ) -> "asyncio.Future[Any] | None":
        return self.messages.begin_ahead(PEER, pb.ChunkWrite(length=len(payload)), payload, hops, sent)

    def forward(
        self, version: int, target: TargetId = PEER, timeout_s: float = 5.0, hops: int = 0
    ) -> "asyncio.Task[pb.ChunkWriteResult]":
        return asyncio.create_task(
            self.messages.forward(target, pb.ForwardStagedRequest(version=version), timeout_s, hops)
        )

    @property
    def only(self) -> Message:
        (message,) = self.peers.messages
        return message


async def turn() -> None:
    """The tasks that wait for their first step make it, and the turn after it ends."""
    for _ in range(3):
        await asyncio.sleep(0)


async def error_from(call: "Awaitable[Any]") -> ThreefsError:
    with pytest.raises(ThreefsError) as raised:
        await call
    return raised.value


def test_forwards_of_a_turn_share_a_message_and_each_has_its_own_outcome() -> None:
    async def main() -> None:
        bench = Bench()
        calls = [bench.forward(1), bench.forward(2, OTHER), bench.forward(3)]
        await turn()
        assert bench.only.method is FORWARD_VERSIONS
        assert [version.version for version in bench.only.request.versions] == [1, 2, 3]
        assert bench.only.request.answer_after_ms == shared_messages._ANSWER_AFTER_MS
        bench.only.reply(DONE, pb.ChunkWriteResult(code=NotStaged.code, message="no"), DONE)
        assert await calls[0] == await calls[2] == DONE
        assert isinstance(await error_from(calls[1]), NotStaged)
        assert not bench.peers.alone

    run_virtual(main())


def test_a_message_with_one_forward_waits_for_it() -> None:
    """An early answer would only cost a second message."""

    async def main() -> None:
        bench = Bench()
        call = bench.forward(1)
        await turn()
        assert bench.only.request.answer_after_ms == 0
        bench.only.reply(DONE)
        assert await call == DONE

    run_virtual(main())


def test_calls_with_different_numbers_of_hops_share_no_message() -> None:
    """Those that end at the peer must not wait for room of those that it passes on."""

    async def main() -> None:
        bench = Bench()
        for hops in (0, 1, 0, 1):
            bench.forward(hops, hops=hops)
        await turn()
        assert [(each.hops, [v.version for v in each.request.versions]) for each in bench.peers.messages] == [
            (0, [0, 0]),
            (1, [1, 1]),
        ]
        bench.peers.messages.clear()
        bench.messages.expect_several()
        for hops in (0, 1, 0, 1):
            bench.ahead(bytes([hops]), hops=hops)
        await turn()
        assert [(each.hops, each.payload) for each in bench.peers.messages] == [(0, [b"\0"] * 2), (1, [b"\1"] * 2)]

    run_virtual(main())


def test_a_change_that_is_cancelled_in_its_turn_is_left_out() -> None:
    async def main() -> None:
        bench = Bench()
        bench.messages.expect_several()
        first, second = bench.ahead(b"first"), bench.ahead(b"second")
        assert first is not None and second is not None
        first.cancel()
        await turn()
        assert bench.only.method is STAGE_AHEAD and bench.only.payload == [b"second"]
        assert [write.length for write in bench.only.request.writes] == [len(b"second")]
        bench.only.reply(pb.ChunkWriteResult())
        await second

    run_virtual(main())


def test_nothing_is_sent_for_a_turn_whose_changes_were_all_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        bench.messages.expect_several()
        only = bench.ahead()
        assert only is not None
        only.cancel()
        await turn()
        assert not bench.peers.messages

    run_virtual(main())


def test_each_change_hears_that_the_kernel_has_the_message() -> None:
    async def main() -> None:
        bench = Bench()
        bench.messages.expect_several()
        told: list[int] = []
        for number in range(3):
            bench.ahead(bytes([number]), sent=lambda number=number: told.append(number))  # type: ignore[misc]
        await turn()
        assert bench.only.sent is not None and not told
        bench.only.sent()
        assert told == [0, 1, 2]

    run_virtual(main())


def test_a_message_has_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_messages, "_MAX_MESSAGE_BYTES", 10)

    async def main() -> None:
        bench = Bench()
        bench.messages.expect_several()
        for size in (4, 4, 4, 4, 4, 12, 1, 9, 1):
            bench.ahead(bytes(size))
        await turn()
        sizes = [[len(piece) for piece in message.payload] for message in bench.peers.messages]
        assert sizes == [[4, 4], [4, 4], [4], [12], [1, 9], [1]]
        assert [[write.length for write in message.request.writes] for message in bench.peers.messages] == sizes

    run_virtual(main())


def test_a_change_that_is_alone_or_finds_no_room_shares_no_message() -> None:
    async def main() -> None:
        bench = Bench()
        assert bench.ahead() is None, "it is sent at once"
        shared = bench.ahead()
        assert shared is not None, "the second one of the turn joins those that come behind it"
        await turn()
        bench.only.reply(pb.ChunkWriteResult())
        await shared
        assert bench.ahead() is None, "another turn"
        await turn()
        bench.messages.expect_several()
        assert bench.ahead() is not None
        await turn()
        await turn()
        assert bench.ahead() is None, "several were expected of one turn only"
        bench.messages.expect_several()
        bench.peers.room = False
        assert bench.ahead() is None
        assert await bench.forward(1) == pb.ChunkWriteResult(version=1)
        assert [version for version, _ in bench.peers.alone] == [1]

    run_virtual(main())


def test_a_message_that_finds_no_room_at_the_end_of_the_turn_is_not_sent() -> None:
    """What should go ahead comes with its forward, and forwards wait for their turn each by itself."""

    async def main() -> None:
        bench = Bench()
        bench.peers.takes = False
        bench.messages.expect_several()
        aheads = [bench.ahead(), bench.ahead()]
        for call in aheads:
            assert call is not None and isinstance(await error_from(call), Unavailable)
        assert [await bench.forward(version) for version in (1, 2)] == [
            pb.ChunkWriteResult(version=version) for version in (1, 2)
        ]
        assert [version for version, _ in bench.peers.alone] == [1, 2]

    run_virtual(main())


def test_a_forward_that_is_slow_goes_alone_with_the_time_that_is_left() -> None:
    async def main() -> None:
        bench = Bench()
        slow, other = bench.forward(1, timeout_s=3.0), bench.forward(2)
        await turn()
        await asyncio.sleep(1.0)
        bench.only.reply(pb.ChunkWriteResult(code=InProgress.code), DONE)
        assert await other == DONE
        assert await slow == pb.ChunkWriteResult(version=1)
        ((version, left_s),) = bench.peers.alone
        assert version == 1 and left_s == pytest.approx(2.0, abs=0.01)

    run_virtual(main())


def test_a_forward_ends_at_its_own_deadline_and_the_others_go_on() -> None:
    async def main() -> None:
        bench = Bench()
        hasty, patient = bench.forward(1, timeout_s=0.5), bench.forward(2)
        began = LOOP_CLOCK.monotonic()
        assert isinstance(await error_from(hasty), DeadlineExceeded)
        assert LOOP_CLOCK.monotonic() - began == pytest.approx(0.5, abs=0.01)
        assert not bench.only.answer.cancelled() and not patient.done()
        bench.only.reply(DONE, DONE)
        assert await patient == DONE

    run_virtual(main())


def test_a_message_ends_with_the_last_of_its_changes() -> None:
    async def main() -> None:
        bench = Bench()
        calls = [bench.forward(1), bench.forward(2)]
        await turn()
        await cancel_and_wait(calls[0])
        await turn()
        assert not bench.only.answer.cancelled()
        await cancel_and_wait(calls[1])
        await turn()
        assert bench.only.answer.cancelled()

    run_virtual(main())


def test_a_message_that_fails_fails_for_each_with_an_error_of_its_own() -> None:
    """An error that several tasks raised would collect the tracebacks of all."""

    async def main() -> None:
        bench = Bench()
        given_up, *calls = [bench.forward(0), bench.forward(1), bench.forward(2, OTHER)]
        await turn()
        await cancel_and_wait(given_up)
        bench.only.answer.set_exception(ConnectionLost("gone"))
        first, second = [await error_from(call) for call in calls]
        assert bench.peers.unanswered == [PEER, OTHER], "their process may be out of reach"
        assert isinstance(first, ConnectionLost) and isinstance(second, ConnectionLost) and first is not second
        assert str(first) == str(second) == "gone"

    run_virtual(main())


def test_a_message_that_meets_a_closed_idle_connection_is_repeated_at_once() -> None:
    """Nothing of it was begun. A pause would come on top of the new connection."""

    async def main() -> None:
        bench = Bench()
        calls = [bench.forward(1), bench.forward(2)]
        await turn()
        bench.only.answer.set_exception(ConnectionIdle("idle: connect again"))
        assert [(await call).version for call in calls] == [1, 2]
        assert [version for version, _ in bench.peers.alone] == [1, 2]

    run_virtual(main())


def test_an_answer_without_a_result_for_each_change_is_none() -> None:
    async def main() -> None:
        bench = Bench()
        calls = [bench.forward(1), bench.forward(2)]
        await turn()
        bench.only.reply(DONE)
        for call in calls:
            assert isinstance(await error_from(call), ProtocolError)

    run_virtual(main())


@pytest.mark.parametrize("refused", [False, True])
def test_an_outcome_that_comes_while_its_change_is_cancelled_is_not_logged(refused: bool) -> None:
    """asyncio logs errors that nobody has asked for."""

    async def main() -> None:
        loop = cast(SimLoop, asyncio.get_running_loop())
        bench = Bench()
        calls = [bench.forward(1), bench.forward(2)]
        await turn()
        if refused:
            bench.only.reply(*[pb.ChunkWriteResult(code=VersionGap.code)] * 2)
        else:
            bench.only.answer.set_exception(ConnectionLost("gone"))
        loop.call_soon(calls[0].cancel)  # behind the answer, before the change hears of it
        await asyncio.wait(calls)
        assert calls[0].cancelled() and not calls[1].cancelled() and calls[1].exception() is not None
        del calls, bench
        gc.collect()
        assert not loop.failures

    run_virtual(main())
