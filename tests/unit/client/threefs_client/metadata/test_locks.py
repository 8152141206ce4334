"""A client's locks: waiting, giving up, and what they mean for its lease."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.metadata.locks import LockOwner

from tests.harness.lock_meta import HangingMeta, LockMeta, play
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import (
    ConnectionLost,
    InvalidArgument,
    Locked,
    OutcomeUnknown,
    ThreefsError,
    TooManyLocks,
    Unavailable,
)
from threefs.wire import meta_pb2 as pb


def test_a_second_owner_waits_until_the_first_is_done() -> None:
    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        first, second = (LockOwner(files.context, 5, number) for number in (1, 2))
        await first.acquire(exclusive=True)
        assert files.context.lease._holders == 1 and files.context.lease.number == 1
        with pytest.raises(Locked):
            await second.acquire(exclusive=True, wait_s=0)
        waiting = asyncio.ensure_future(second.acquire(exclusive=True))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        found = await second.conflict(exclusive=True)
        assert found is not None and (found.type, found.owner, found.pid) == (pb.EXCLUSIVE, 0, 0)
        await first.release()
        await waiting
        assert second.is_held and not first.is_held
        assert await second.conflict(exclusive=True) is None
        await second.release()
        await second.release()
        assert len({request.mutation.request for request in meta.requests if hasattr(request, "mutation")}) > 4

    play(scene)


def test_a_call_that_is_cancelled_or_times_out_has_nothing() -> None:
    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        first, second = (LockOwner(files.context, 5, number) for number in (1, 2))
        await first.acquire(exclusive=True)
        waiting = asyncio.ensure_future(second.acquire(exclusive=True))
        await asyncio.sleep(0.05)
        await cancel_and_wait(waiting)
        await first.release()
        meta.error = InvalidArgument("this may have been anything")
        with pytest.raises(InvalidArgument):
            await second.acquire(exclusive=True)
        await second.release()
        assert meta.holder == 0

    play(scene)


@pytest.mark.parametrize("how", ["away", "refused"])
def test_who_has_a_lock_and_asks_for_a_stronger_one_keeps_it_when_that_fails(how: str) -> None:
    """The failed call took the lock away as well: its owner relied on it, and another client got it."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner, other = (LockOwner(files.context, 5, number) for number in (1, 2))
        await owner.acquire(exclusive=False)
        meta.is_away, meta.error = how == "away", TooManyLocks("you have 1024")
        with pytest.raises((OutcomeUnknown, TooManyLocks)):
            await owner.acquire(exclusive=True)
        meta.is_away, meta.error = False, None
        await asyncio.sleep(10)
        assert owner.is_held and meta.holder == 1
        with pytest.raises(Locked):
            await other.acquire(exclusive=True, wait_s=0)
        await owner.release()
        assert meta.holder == 0

    play(scene)


def test_a_lock_whose_unlock_nobody_confirms_is_unlocked_when_somebody_answers() -> None:
    """It stayed as long as its process held anything else: a mount holds something for weeks."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        for how in ("closed", "unknown"):
            if how == "closed":
                await owner.acquire(exclusive=True)
                meta.is_away = True
                await owner.release_all()
            else:
                meta.is_away = True
                with pytest.raises(OutcomeUnknown):
                    await owner.acquire(exclusive=True)
                meta.holder = 1  # it was granted
            with pytest.raises(ThreefsError):  # nothing waits for ever, and nothing passes the unlock
                await owner.acquire(exclusive=True)
            await asyncio.sleep(100)
            assert meta.holder == 1
            meta.is_away = False
            await asyncio.sleep(10)
            assert meta.holder == 0 and owner.unlocking is None and files.context.lease._holders == 0

    play(scene)


@pytest.mark.parametrize("cancel_wait", [False, True])
def test_what_was_given_up_takes_nothing_away_from_who_asks_again(cancel_wait: bool) -> None:
    """The lock was asked for again before the unlock of the attempt that was cancelled went out, and it took the lock
    away: its owner believed to have it, and so did the next one."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner, other = (LockOwner(files.context, 5, number) for number in (1, 2))
        answer, hold = meta.answer, asyncio.Event()

        async def slow(name: str, request: Any) -> Any:
            reply = await answer(name, request)
            if name == "Lock" and not hold.is_set():
                await asyncio.sleep(1)  # its answer
            return reply

        meta.answer = slow  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await owner.acquire(exclusive=True)
        if cancel_wait:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await owner.acquire(exclusive=True)
        hold.set()
        await owner.acquire(exclusive=True)
        await asyncio.sleep(5)
        assert owner.is_held and not owner.is_lost and meta.holder == 1
        with pytest.raises(Locked):
            await other.acquire(exclusive=True, wait_s=0)
        await owner.release()
        assert meta.holder == 0

    play(scene)


def play_file(scene: Callable[[AsyncFile, LockMeta], Awaitable[None]]) -> None:
    async def run() -> None:
        files, meta = MemoryFiles(), LockMeta()
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", b"abc")

        async def lock(request: pb.LockRequest) -> Any:
            return await meta.answer("Lock", request)

        files.meta._lock = lock  # type: ignore[attr-defined]
        async with await fs.open("/a") as file:
            await scene(file, meta)
        assert meta.holder == 0 and files.context.lease._holders == 0
        await files.context.lease.close()

    run_virtual(run())


def test_an_open_file_has_its_lock_until_it_is_closed() -> None:
    async def scene(file: AsyncFile, meta: LockMeta) -> None:
        await file.lock()
        assert meta.holder != 0
        await file.unlock()
        assert meta.holder == 0
        await file.lock()

    play_file(scene)


@pytest.mark.parametrize("how", ["fails", "cancelled"])
def test_a_lock_that_was_had_in_vain_is_given_back(how: str) -> None:
    """The file could not be looked at under it. Its owner was told so, and kept the lock until the file was closed."""

    async def scene(file: AsyncFile, meta: LockMeta) -> None:
        look = asyncio.Event()

        async def refresh() -> None:
            look.set()
            if how == "fails":
                raise Unavailable("away")
            await asyncio.Event().wait()

        file.handle.refresh = refresh  # type: ignore[method-assign]
        locking = asyncio.create_task(file.lock())
        await look.wait()
        if how == "cancelled":
            locking.cancel()
        with pytest.raises((Unavailable, asyncio.CancelledError)):
            await locking
        await asyncio.sleep(1)
        assert meta.holder == 0 and file.handle.context.lease._holders == 0

    play_file(scene)


@pytest.mark.parametrize("in_vain", [[0], [1], [0, 1], [1, 0]])
def test_a_lock_that_one_task_had_in_vain_stays_if_another_relies_on_it(in_vain: list[int]) -> None:
    """The other one had been granted it before or since, and was not told that the file was unlocked."""

    async def scene(file: AsyncFile, meta: LockMeta) -> None:
        looks: list[asyncio.Future[None]] = []

        async def refresh() -> None:
            looks.append(asyncio.get_running_loop().create_future())
            await looks[-1]

        await file.lock()
        await file.unlock()
        file.handle.refresh = refresh  # type: ignore[method-assign]
        locking = [asyncio.create_task(file.lock()) for _ in range(2)]
        await asyncio.sleep(1)
        for number in in_vain:
            looks[number].set_exception(Unavailable("away"))
            await asyncio.sleep(1)
        for number in {0, 1}.difference(in_vain):
            looks[number].set_result(None)
            await locking[number]
        await asyncio.gather(*locking, return_exceptions=True)
        assert (meta.holder != 0) == (len(in_vain) == 1)

    play_file(scene)


@pytest.mark.parametrize("first", ["the lock", "a renewal"])
def test_a_lock_that_was_asked_for_when_the_loss_of_others_was_noticed_is_unlocked(first: str) -> None:
    """It was granted under the new lease, and its owner did not know that it had one: the lock stayed as long as its
    process held anything else."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        files.context.lease.on_lost.append(owner.mark_lost)  # as a mount does
        await owner.acquire(exclusive=True)
        answer = meta.answer

        async def slow(name: str, request: Any) -> Any:
            reply = await answer(name, request)
            if name == "Lock" and first == "a renewal":
                files.context.lease.granted(meta.lease)
            return reply

        meta.answer, meta.lease = slow, 2  # type: ignore[method-assign]
        await owner.acquire(exclusive=True)
        assert owner.is_held and files.context.lease._holders == 1
        await owner.release()
        assert meta.holder == 0 and files.context.lease._holders == 0

    play(scene)


async def given_up(meta: HangingMeta, call: Awaitable[object]) -> None:
    """The service hangs with it, and its caller goes away."""
    meta.hangs = True
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.01)
    await cancel_and_wait(task)


def test_a_lock_that_a_service_grants_after_it_was_given_up_is_unlocked() -> None:
    """It stayed for as long as its client had a lease, and nobody knew of it."""

    async def scene(files: MemoryFiles, meta: HangingMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        await given_up(meta, owner.acquire(exclusive=True))
        while owner.unlocking is not None:
            await asyncio.sleep(0.01)
        await meta.go_on()
        assert meta.holder == 0 and not owner.is_held

    play(scene, HangingMeta)


def test_an_unlock_that_a_service_makes_after_it_was_given_up_takes_no_later_lock() -> None:
    """Two owners had the lock, and the first one did not know."""

    async def scene(files: MemoryFiles, meta: HangingMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        await owner.acquire(exclusive=True)
        await given_up(meta, owner.release())
        await owner.acquire(exclusive=True)
        await meta.go_on()
        assert meta.holder == 1 and owner.is_held
        await owner.release()
        await meta.go_on()
        assert meta.holder == 0

    play(scene, HangingMeta)


def test_a_lock_that_was_given_up_is_settled_also_if_the_others_were_lost_since() -> None:
    """The close of the file had nothing to unlock then. The lock came later, and stayed."""

    async def scene(files: MemoryFiles, meta: HangingMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        await owner.acquire(exclusive=True)
        await given_up(meta, owner.acquire(exclusive=True))
        meta.holder, meta.lease = 0, 2
        owner.mark_lost()
        assert owner.may_hold and not owner.is_held
        await owner.release_all()
        await meta.go_on()
        assert meta.holder == 0 and not owner.may_hold

    play(scene, HangingMeta)


def test_an_answer_about_the_end_of_a_wait_that_comes_late_brings_no_lock_back() -> None:
    """Its owner believed to hold what it had just unlocked, and kept the lease for it."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        answer = meta.answer

        async def slow(name: str, request: Any) -> Any:
            if name != "Lock" or not request.end_wait:
                return await answer(name, request)
            reply = pb.LockReply(lease=meta.lease, held=int(meta.holder != 0))
            await asyncio.sleep(0.1)
            return reply

        meta.answer = slow  # type: ignore[method-assign]
        owner = LockOwner(files.context, 5, 1, kind=pb.RECORD_LOCK)
        await owner.acquire(exclusive=True)
        owner._is_queued = True  # it has asked for more, and gives that up
        owner.cancel_wait_soon()
        await asyncio.sleep(0.01)
        owner.unlock_soon()
        await asyncio.sleep(1)
        assert meta.holder == 0 and not owner.is_held

    play(scene)


@pytest.mark.parametrize("what", ["two locks", "a lock, and the unlock of an earlier one"])
def test_requests_of_one_owner_at_once_hold_the_lease_once_and_as_long_as_they_need_it(what: str) -> None:
    """Two counted as two holders, so the lease was never returned; and an unlock gave the lease up under the lock that
    was just granted."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        meta.delay_s = 0.1
        files.context.lease._is_unsure = True  # so it is renewed first
        owner = LockOwner(files.context, 5, 1)
        if what == "two locks":
            await asyncio.gather(*(owner.acquire(exclusive=True) for _ in range(2)))
        else:
            await owner.acquire(exclusive=True)
            await asyncio.gather(owner.release(), owner.acquire(exclusive=True))
        assert owner.is_held and files.context.lease._holders == 1
        await owner.release()

    play(scene)


def answers_late(meta: HangingMeta) -> asyncio.Event:
    """What answers that requests for locks get from now on wait for."""
    answer, healed = meta.answer, asyncio.Event()

    async def late(name: str, request: Any) -> Any:
        reply = await answer(name, request)
        if name == "Lock":
            await healed.wait()
        return reply

    meta.answer = late  # type: ignore[method-assign]
    return healed


def test_a_lock_of_a_lease_that_ended_before_the_answer_came_is_asked_for_anew() -> None:
    """The repeat of a request gets the answer of before: the lock was another client's by then, and two had it."""

    async def scene(files: MemoryFiles, meta: HangingMeta) -> None:
        healed = answers_late(meta)
        owner = LockOwner(files.context, 5, 1)
        asking = asyncio.ensure_future(owner.acquire(exclusive=True))
        await asyncio.sleep(0.01)
        meta.holder, meta.lease = 1234, 2
        await files.context.lease.renew_now()
        healed.set()
        await asyncio.sleep(1)
        assert not asking.done() and not owner.is_held, "another client has it"
        meta.holder = 0
        await asking
        assert owner.is_held and not owner.is_lost and meta.holder == 1
        await owner.release()

    play(scene, HangingMeta)


@pytest.mark.parametrize("next_holder", [0, 1234])
def test_a_lock_that_was_lost_while_it_was_asked_for_again_stays_lost(next_holder: int) -> None:
    """The answer was that of before, and its owner forgot that what it had was lost: it could be another's since."""

    async def scene(files: MemoryFiles, meta: HangingMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        await owner.acquire(exclusive=True)
        healed = answers_late(meta)
        asking = asyncio.ensure_future(owner.acquire(exclusive=True, wait_s=0))
        await asyncio.sleep(0.01)
        meta.holder, meta.lease = next_holder, 2
        await files.context.lease.renew_now()
        assert owner.is_lost
        healed.set()
        with pytest.raises(Locked) if next_holder else contextlib.nullcontext():
            await asking
        assert owner.is_lost and owner.is_held == (next_holder == 0)
        await owner.release()

    play(scene, HangingMeta)


def test_leases_that_end_all_the_time_bring_no_lock() -> None:
    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        files.context.lease.number = 9
        with pytest.raises(Unavailable, match="try again"):
            await owner.acquire(exclusive=True)
        assert not owner.is_held and len(meta.requests) < 9

    play(scene)


def test_a_task_that_gives_up_takes_no_lock_away_from_another_task_of_its_owner() -> None:
    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        meta.delay_s = 0.1
        owner = LockOwner(files.context, 5, 1)
        first, second = (asyncio.ensure_future(owner.acquire(exclusive=True)) for _ in range(2))
        await asyncio.sleep(0.05)
        await cancel_and_wait(second)
        await first
        await asyncio.sleep(1)
        assert owner.is_held and meta.holder == 1
        await owner.release()

    play(scene)


def test_no_unlock_of_several_in_the_background_takes_a_later_lock() -> None:
    """Only the last one was known. An earlier one that paused came behind the lock."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        for outage_s in (0.5, 3.0, 5.25, 6.0, 7.5, 10.75):
            owner = LockOwner(files.context, 5, 1)
            meta.is_away = True
            tasks = [asyncio.ensure_future(owner.acquire(exclusive=True)) for _ in range(2)]
            await asyncio.sleep(0.1)
            await cancel_and_wait(*tasks)
            await asyncio.sleep(outage_s)
            meta.is_away = False
            await owner.acquire(exclusive=True)
            await asyncio.sleep(5)
            assert owner.is_held and meta.holder == 1, f"after {outage_s} s"
            await owner.release()

    play(scene)


def test_an_unlock_that_dies_keeps_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner = LockOwner(files.context, 5, 1)
        await owner.acquire(exclusive=True)
        meta.error = RuntimeError("a fault of ours")
        owner.unlock_soon()
        await asyncio.sleep(1)
        await owner.release()
        assert files.context.lease._holders == 0

    play(scene)


def test_an_unlock_is_not_confirmed_before_the_lease_is() -> None:
    """The lock may have been lost with an earlier lease, which nobody would hear of later."""

    async def scene(files: MemoryFiles, meta: LockMeta) -> None:
        owner, answer, silent, lost = LockOwner(files.context, 5, 1), meta.answer, [True], list[bool]()
        files.context.lease.on_lost.append(lambda: lost.append(owner.is_lost))

        async def without_renewals(name: str, request: Any) -> Any:
            if name == "RenewLease" and silent:
                raise ConnectionLost("no answer")
            return await answer(name, request)

        await owner.acquire(exclusive=True)
        meta.answer, files.context.lease._valid_until = without_renewals, 0.0  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown, match="whether a lock on inode 5 was lost is not known"):
            await owner.release()
        assert owner.is_held
        silent.clear()
        meta.lease = 2
        await owner.release()
        assert lost == [True] and not owner.is_held

    play(scene)
