"""Small writes share messages, and none waits for another one's chain, fails for another or is lost."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.cluster.write_coalescer import MAX_BYTES, WriteCoalescer
from threefs.errors import ConnectionLost, DeadlineExceeded, InProgress, NoSpace
from threefs.wire import storage_pb2 as pb

QUICK_S = 0.01


class Service:
    """Answers as the storage service does: as a whole, or after a time without what is slow."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, list[int], int]] = []  # address, targets, bytes
        self.delay_s: dict[int, float] = {}  # of a target
        self.full: set[int] = set()
        self.error: Exception | None = None

    async def __call__(
        self, address: str, request: pb.WriteRequest, payload: Sequence[Any], timeout_s: float
    ) -> pb.WriteReply:
        targets = [write.target for write in request.writes]
        self.messages.append((address, targets, sum(map(len, payload))))
        delays = [self.delay_s.get(target, QUICK_S) for target in targets]
        patience_s = request.answer_after_ms / 1000 or timeout_s
        await asyncio.sleep(min(max(delays), patience_s))
        if self.error is not None:
            raise self.error
        if max(delays) > timeout_s and not request.answer_after_ms:
            raise DeadlineExceeded("too slow")
        return pb.WriteReply(results=[self._result(*row, patience_s) for row in zip(targets, delays, strict=True)])

    def _result(self, target: int, delay_s: float, patience_s: float) -> pb.ChunkWriteResult:
        if delay_s > patience_s:
            return pb.ChunkWriteResult(code=InProgress.code)
        return pb.ChunkWriteResult(code=NoSpace.code if target in self.full else 0, version=target)


def play(scene: Callable[[WriteCoalescer, Service], Coroutine[Any, Any, None]], most_bytes: int = 1 << 20) -> Service:
    service = Service()
    run_virtual(scene(WriteCoalescer(service, most_bytes, 1024, clock=LOOP_CLOCK), service))
    return service


def write(
    writes: WriteCoalescer, *targets: int, size: int = 100, timeout_s: float = 10.0, alone: bool = False
) -> "asyncio.Task[Any]":
    request = pb.WriteRequest(writes=[pb.ChunkWrite(target=target, length=size) for target in targets])
    payload = [bytes(size) for _ in targets]
    return asyncio.create_task(writes.write("storage-1", request, payload, timeout_s, alone=alone))


def test_writes_of_one_turn_share_a_message_and_each_has_its_own_result() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        service.full = {3}
        found = await asyncio.gather(*(write(writes, target, target + 10) for target in range(1, 9)))
        versions = [[result.version for result in results] for results in found]
        assert versions == [[target, target + 10] for target in range(1, 9)]
        assert [result.code for results in found for result in results if result.code] == [NoSpace.code]

    service = play(scene)
    assert [(len(targets), size) for _, targets, size in service.messages] == [(16, 1600)]


def test_writes_that_come_while_messages_are_under_way_gather() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        calls = []
        for target in range(60):
            calls.append(write(writes, target + 1))
            await asyncio.sleep(QUICK_S / 50)
        assert [results[0].version for results in await asyncio.gather(*calls)] == list(range(1, 61))

    assert len(play(scene).messages) < 12


def test_one_write_after_the_other_goes_out_by_itself() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        for target in range(1, 5):
            assert (await write(writes, target))[0].version == target

    assert [targets for _, targets, _ in play(scene).messages] == [[1], [2], [3], [4]]


def test_large_ones_and_repeats_share_no_message() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        await asyncio.gather(
            write(writes, 1), write(writes, 2, size=MAX_BYTES + 1), write(writes, 3, alone=True), write(writes, 4)
        )

    assert sorted(targets for _, targets, _ in play(scene).messages) == [[1, 4], [2], [3]]


def test_a_message_keeps_to_the_bounds_of_the_service() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        await asyncio.gather(*(write(writes, target + 1, size=1000) for target in range(20)))

    service = play(scene, most_bytes=5000)
    sizes = [size for _, _, size in service.messages]
    assert max(sizes) == 5000 and sum(sizes) == 20_000 and len(sizes) <= 5


def test_a_slow_chain_holds_up_no_other() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        loop = asyncio.get_running_loop()
        service.delay_s = {7: 8.0}
        began = loop.time()
        stuck = [write(writes, 7), write(writes, 7)]
        others = [write(writes, target) for target in range(1, 6)]
        assert all(not results[0].code for results in await asyncio.gather(*others))
        assert loop.time() - began < 1
        assert [results[0].code for results in await asyncio.gather(*stuck)] == [InProgress.code] * 2
        again = [write(writes, 7, alone=True), write(writes, 7)]  # of that chain nothing shares a message any more
        await asyncio.sleep(0.1)
        began = loop.time()
        assert (await write(writes, 1))[0].version == 1
        assert loop.time() - began < 10 * QUICK_S
        assert all(not results[0].code for results in await asyncio.gather(*again))
        service.delay_s = {}
        service.messages.clear()
        await asyncio.gather(*(write(writes, target) for target in (2, 1, 7)))
        assert [1, 7] in [sorted(targets) for _, targets, _ in service.messages], "it has confirmed a write since"

    play(scene)


def test_a_slow_chain_by_itself_does_not_keep_others_from_being_sent() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        loop = asyncio.get_running_loop()
        service.delay_s = {7: 8.0, 8: 8.0}
        stuck = []
        for target in (7, 8):  # each alone in its message
            stuck.append(write(writes, target))
            await asyncio.sleep(0.001)
        began = loop.time()
        assert (await write(writes, 1))[0].version == 1
        assert loop.time() - began < 1
        await asyncio.gather(*stuck)

    play(scene)


def test_each_caller_waits_until_its_own_deadline() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        loop = asyncio.get_running_loop()
        service.delay_s = {1: 0.2}
        began = loop.time()
        hasty, patient = write(writes, 1, timeout_s=0.05), write(writes, 1)
        with pytest.raises(DeadlineExceeded):
            await hasty
        assert loop.time() - began < 0.1
        assert (await patient)[0].version == 1

    play(scene)


def test_a_caller_that_has_gone_takes_nothing_from_the_others() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        gone, stays = write(writes, 1), write(writes, 2)
        await asyncio.sleep(QUICK_S / 2)
        await cancel_and_wait(gone)
        assert (await stays)[0].version == 2
        unsent, other = write(writes, 3), write(writes, 4)
        unsent.cancel()
        assert (await other)[0].version == 4

    assert [targets for _, targets, _ in play(scene).messages] == [[1, 2], [4]]


def test_a_lost_message_fails_each_of_its_writes() -> None:
    async def scene(writes: WriteCoalescer, service: Service) -> None:
        service.error = ConnectionLost("gone")
        failures = await asyncio.gather(*(write(writes, target) for target in (1, 2, 3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectionLost] * 3
        assert len({id(failure) for failure in failures}) == 3

    play(scene)
