import asyncio

from threefs_mount.files.short_reads import ShortReads

from threefs.background import cancel_and_wait


async def test_a_short_read_is_answered_behind_those_that_begin_before_it() -> None:
    reads, answered = ShortReads(), list[int]()
    numbers = {offset: reads.begin(offset) for offset in (30, 10, 20, 20)}

    async def short(offset: int) -> None:
        await reads.wait_for_earlier(numbers[offset])
        answered.append(offset)
        reads.end(numbers[offset])

    waiting = [asyncio.ensure_future(short(offset)) for offset in (30, 20)]
    await asyncio.sleep(0)
    assert not answered
    later = reads.begin(5)  # it asks while they wait: the kernel knows what they say only if they come first
    reads.end(numbers[10])
    await asyncio.sleep(0)
    assert not answered
    reads.end(later)
    await asyncio.wait_for(waiting[1], 1)
    await asyncio.sleep(0)
    assert answered == [20], "another one at the same place is still under way"
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await reads.wait_for_earlier(reads.begin(0))


async def test_a_cancelled_wait_delays_no_other() -> None:
    reads = ShortReads()
    first, second = reads.begin(0), reads.begin(1)
    waiting = asyncio.ensure_future(reads.wait_for_earlier(second))
    await asyncio.sleep(0)
    await cancel_and_wait(waiting)
    reads.end(second)
    reads.end(first)
    assert not reads._running and not reads._waiting
