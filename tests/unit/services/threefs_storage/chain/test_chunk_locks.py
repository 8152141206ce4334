import asyncio

import pytest
from threefs_storage.chain.chunk_locks import ChunkLocks

from threefs.background import cancel_and_wait
from threefs.errors import DeadlineExceeded
from threefs.ids import ChunkId

A, B = ChunkId(1, 0), ChunkId(1, 1)


async def test_one_at_a_time_in_the_order_of_arrival_and_nothing_stays() -> None:
    locks = ChunkLocks()
    story: list[str] = []

    async def use(name: str, chunk: ChunkId) -> None:
        async with locks.hold(chunk, 30):
            story.append(f"{name} in")
            await asyncio.sleep(0)
            story.append(f"{name} out")

    await asyncio.gather(use("a", A), use("b", A), use("c", A))
    assert story == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert len(locks) == 0 and A not in locks


async def test_chunks_do_not_wait_for_each_other() -> None:
    locks = ChunkLocks()
    async with locks.hold(A, 30), locks.hold(B, 30):
        assert A in locks and B in locks


async def test_a_wait_that_is_too_long_is_an_error_and_leaves_no_trace() -> None:
    locks = ChunkLocks()
    async with locks.hold(A, 30):
        with pytest.raises(DeadlineExceeded):
            async with locks.hold(A, 0.001):
                raise AssertionError("two hold it")
        with pytest.raises(DeadlineExceeded):
            async with locks.hold(A, -1):
                raise AssertionError("two hold it")
        assert len(locks) == 1
    assert len(locks) == 0


async def test_a_call_behind_one_that_gets_the_turn_waits_no_longer_than_asked() -> None:
    locks = ChunkLocks()
    entered = asyncio.Event()

    async def keep() -> None:
        async with locks.hold(A, 30):
            entered.set()
            await asyncio.sleep(30)

    async with locks.hold(A, 30):
        keeper = asyncio.create_task(keep())
        await asyncio.sleep(0)
    assert not entered.is_set()  # it is free, and promised
    with pytest.raises(DeadlineExceeded):
        async with locks.hold(A, 0.01):
            raise AssertionError("two hold it")
    await cancel_and_wait(keeper)
    assert len(locks) == 0


async def test_an_error_of_the_holder_or_a_cancelled_waiter_frees_the_lock() -> None:
    locks = ChunkLocks()

    async def wait() -> None:
        async with locks.hold(A, 30):
            raise AssertionError("was cancelled")

    with pytest.raises(TimeoutError):  # of the holder, not of the wait
        async with locks.hold(A, 30):
            waiter = asyncio.create_task(wait())
            await asyncio.sleep(0)
            await cancel_and_wait(waiter)
            raise TimeoutError
    async with locks.hold(A, 0):
        pass
    assert len(locks) == 0
