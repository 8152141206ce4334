"""The lease of a client: when it calls, what it reports, and what it finds lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_client.metadata.lease import Lease

from tests.harness.clocks import SteppedClock
from threefs.errors import DeadlineExceeded, Unavailable
from threefs.wire import meta_pb2 as pb


class Meta:
    def __init__(self) -> None:
        self.clock = SteppedClock(0.0, sleepers_wait=True)
        self.requests: list[pb.RenewLeaseRequest] = []
        self.number = 7
        self.away = False
        self.silent = False  # nobody says that it is away either
        self.patience: list[float] = []
        self.lease = Lease(b"c" * 16, self.renew, lambda: 10.0, timeout_s=60.0, clock=self.clock)

    async def renew(self, request: pb.RenewLeaseRequest, timeout_s: float) -> pb.RenewLeaseReply:
        await asyncio.sleep(0)
        self.patience.append(timeout_s)
        if self.silent:
            await self.clock.sleep(timeout_s)
            raise DeadlineExceeded("no answer")
        if self.away:
            raise Unavailable("away")
        self.requests.append(request)
        return pb.RenewLeaseReply(lease=0 if request.end else self.number)

    async def open(self) -> None:
        await self.lease.acquire()
        self.lease.granted(self.number)


def with_lease(test: Callable[[Meta], Awaitable[None]]) -> Callable[[], None]:
    """Runs a test with a lease of its own, which is closed in the end."""

    async def whole() -> None:
        meta = Meta()
        await test(meta)
        await meta.lease.close()

    def run() -> None:
        asyncio.run(whole())

    return run


@with_lease
async def test_it_is_renewed_while_something_is_held_and_returned_after_that(meta: Meta) -> None:
    await meta.open()
    await meta.clock.pass_by(100)
    assert len(meta.requests) == 10 and meta.lease.is_valid
    meta.lease.release()
    await meta.clock.pass_by(100)
    assert [request.end for request in meta.requests[10:]] == [7]
    await meta.clock.pass_by(1000)
    assert len(meta.requests) == 11, "an idle client is silent"
    meta.number = 8
    await meta.open()
    assert meta.lease.number == 8 and meta.lease.is_valid
    await meta.clock.pass_by(10)
    assert len(meta.requests) == 12


@with_lease
async def test_a_file_that_is_read_quickly_is_never_reported(meta: Meta) -> None:
    for _ in range(50):
        meta.lease.opened_for_read(1)
        await meta.clock.pass_by(4)
        meta.lease.closed_for_read(1)
    assert meta.requests == []


@with_lease
async def test_files_that_stay_open_are_reported_in_time_and_dropped_later(meta: Meta) -> None:
    for inode in range(5000):
        meta.lease.opened_for_read(inode)
    meta.lease.opened_for_read(3)
    await meta.clock.pass_by(20)
    assert [len(request.hold) for request in meta.requests][:5] == [1024, 1024, 1024, 1024, 904]
    assert sum(len(request.hold) for request in meta.requests) == 5000
    await meta.clock.pass_by(20)
    assert sum(len(request.hold) for request in meta.requests) == 5000, "once is enough"
    for inode in range(5000):
        meta.lease.closed_for_read(inode)
    await meta.clock.pass_by(10)
    assert sum(len(request.drop) for request in meta.requests) == 4999, "one is still open by another handle"
    meta.lease.closed_for_read(3)
    await meta.clock.pass_by(30)
    assert sum(len(request.drop) for request in meta.requests) == 5000 and meta.requests[-1].end == 7


@with_lease
async def test_it_is_renewed_whatever_becomes_of_a_file_that_was_forgotten(meta: Meta) -> None:
    """The renewals ended, and what was written was lost with the lease."""
    await meta.open()
    meta.lease.forgotten_for_read(1)  # which is not open
    await meta.clock.pass_by(100)
    assert len(meta.requests) == 9 and meta.lease.is_valid


@with_lease
async def test_it_is_believed_for_less_than_its_length(meta: Meta) -> None:
    """The service that counts the time may have a clock that runs faster."""
    await meta.open()
    await meta.clock.pass_by(10)
    meta.away = True
    await meta.clock.pass_by(24)
    assert meta.lease.is_valid
    await meta.clock.pass_by(2)
    assert not meta.lease.is_valid and meta.lease.duration_s == 30


@with_lease
async def test_after_a_silence_it_asks_before_anything_is_written(meta: Meta) -> None:
    await meta.open()
    meta.lease.opened_for_read(1)
    await meta.clock.pass_by(20)
    meta.away = True
    await meta.clock.pass_by(31)
    assert not meta.lease.is_valid
    with pytest.raises(Unavailable):
        await meta.lease.revalidate()
    meta.away = False
    await meta.lease.revalidate()
    assert meta.lease.is_valid and meta.lease.number == 7
    assert meta.patience[-2:] == [60.0, 60.0], "an operation waits as long as for anything else"
    assert set(meta.patience[:-2]) == {10.0}


@with_lease
async def test_operations_that_wait_for_the_same_answer_fail_in_the_time_of_each(meta: Meta) -> None:
    """Each waited for its own answer when its turn came: the last one of many failed after as many times."""
    await meta.open()
    meta.silent = True
    await meta.clock.pass_by(31)
    assert not meta.lease.is_valid
    first = [asyncio.create_task(meta.lease.revalidate()) for _ in range(20)]
    await meta.clock.pass_by(30)
    later = [asyncio.create_task(meta.lease.renew_now()) for _ in range(20)]
    for _ in range(31):
        await meta.clock.pass_by(1)
    assert all(task.done() and task.exception() for task in first)
    assert not any(task.done() for task in later), "each has its whole time"
    for _ in range(31):
        await meta.clock.pass_by(1)
    assert all(task.done() and task.exception() for task in later)
    meta.silent = False


@with_lease
async def test_a_lease_that_ran_out_is_another_one_and_files_are_reported_anew(meta: Meta) -> None:
    await meta.open()
    meta.lease.opened_for_read(1)
    await meta.clock.pass_by(20)
    meta.number = 9
    await meta.clock.pass_by(10)
    assert meta.lease.number == 9
    count = len(meta.requests)
    await meta.clock.pass_by(10)
    assert list(meta.requests[count].hold) == [1]


@with_lease
async def test_a_request_waits_while_the_lease_is_returned(meta: Meta) -> None:
    await meta.open()
    meta.lease.release()
    released = asyncio.Event()
    renew = meta.renew

    async def slowly(request: pb.RenewLeaseRequest, timeout_s: float) -> pb.RenewLeaseReply:
        await released.wait()
        return await renew(request, timeout_s)

    meta.lease._renew = slowly
    await meta.clock.pass_by(10)
    entering = asyncio.create_task(meta.lease.acquire())
    await asyncio.sleep(0)
    assert not entering.done()
    meta.lease._renew = renew
    released.set()
    meta.number = 8
    await entering
    assert meta.requests[0].end == 7
    meta.lease.granted(8)
    await meta.clock.pass_by(10)
    assert meta.requests[-1].end == 0, "it is renewed from then on"


@with_lease
async def test_closing_gives_everything_up_at_once(meta: Meta) -> None:
    await meta.open()
    await meta.lease.close()
    assert meta.requests[-1].end == 7
    await meta.open()
    meta.away = True


@with_lease
async def test_holders_are_notified_at_once_of_a_lost_lease(meta: Meta) -> None:
    told: list[int] = []
    meta.lease.on_lost.append(lambda: told.append(meta.lease.number))
    await meta.open()
    await meta.lease.renew_now()
    assert told == []
    meta.number += 1
    await meta.lease.renew_now()
    assert told == [meta.number]
    meta.lease.granted(meta.number + 1)
    assert told == [meta.number, meta.number + 1]


@with_lease
async def test_a_call_that_is_cancelled_before_its_request_holds_nothing(meta: Meta) -> None:
    """The lease was kept for as long as the process lived."""
    await meta.open()
    meta.lease.release()
    async with meta.lease._renewal_lock:  # a renewal, or the old one is being given up
        entering = asyncio.create_task(meta.lease.acquire())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    await meta.clock.pass_by(25)
    assert meta.requests and meta.requests[-1].end == meta.number, "it is given up"


@with_lease
async def test_a_lease_that_may_not_have_been_returned_is_renewed_before_anything_is_held_under_it(meta: Meta) -> None:
    """What was opened under it ended with it a moment later: the service had it, with its old begin."""
    await meta.open()
    meta.lease.release()
    meta.away = True
    await meta.clock.pass_by(10)  # it is given up, and nobody answers
    meta.away = False
    await meta.open()
    assert [request.end for request in meta.requests] == [0] and meta.lease.number == meta.number
    assert [request.number for request in meta.requests] == [2], "the return was the first, and may come late"


@with_lease
async def test_who_slept_through_the_end_of_its_lease_asks_before_it_opens(meta: Meta) -> None:
    await meta.open()
    meta.lease.release()
    meta.clock.advance(100)
    meta.number = 8
    lost: list[int] = []
    meta.lease.on_lost.append(lambda: lost.append(meta.lease.number))
    await meta.open()
    assert len(meta.requests) == 1 and lost == [8]
    meta.away = True
    meta.clock.advance(100)
    with pytest.raises(Unavailable):
        await meta.lease.acquire()
    meta.away = False
    meta.lease.release()
    await meta.clock.pass_by(30)
    assert meta.requests[-1].end == 8, "the call that failed holds nothing"


@with_lease
async def test_a_request_does_not_prolong_the_lease_that_one_before_may_have_begun(meta: Meta) -> None:
    """It was believed for as long as new files were opened, although no service had answered."""
    await meta.lease.acquire()
    meta.away = True
    await meta.clock.pass_by(20)
    await meta.lease.acquire()
    meta.lease.granted(meta.number)  # the answer to the first
    await meta.clock.pass_by(6)
    assert not meta.lease.is_valid


@with_lease
async def test_nor_does_one_after_a_sleep(meta: Meta) -> None:
    await meta.lease.acquire()
    meta.clock.advance(40)
    meta.number = 8
    await meta.lease.acquire()
    meta.lease.granted(7)  # the answer to the first
    assert meta.lease.number == 8, "what the first has opened is lost"
