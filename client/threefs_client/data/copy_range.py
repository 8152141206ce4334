"""Copies bytes from one open file into another, through the memory of this process. Holes stay holes."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np

from threefs.background import cancel_and_wait
from threefs.errors import InvalidArgument
from threefs_client.data.fallocate import Allocation, allocate
from threefs_client.data.handles import Handle
from threefs_client.data.hole_retry import HoleRetry
from threefs_client.data.sparse import data_ranges

#: A piece is read while the previous one is written, so two pieces are in memory.
PIECE_BYTES = 8 << 20
_LIST_ATTEMPTS = 5  # of the holes of a file that is being changed


async def copy_range(source: Handle, offset: int, destination: Handle, at: int, length: int) -> int:
    """Copy up to `length` bytes to offset `at` of the destination. Returns how many; fewer only at the end of the
    source.

    They are durable on all replicas when it returns. Raises InvalidArgument if the ranges overlap within one file.
    """
    if offset < 0 or length < 0:
        raise InvalidArgument(f"offset and length of a range cannot be negative: {length} bytes at {offset}")
    await source.sync()
    await HoleRetry(source.context, source.file, source.session).wait_until_still(offset, offset + length)
    length = max(0, min(length, source.length - offset))
    await destination.recheck_quota()
    destination.check_write(at, length)
    if source.inode == destination.inode and abs(offset - at) < length:
        raise InvalidArgument(
            f"the ranges of {length} bytes at {offset} and at {at} of one file overlap: copy to another file first"
        )
    if not length:
        return 0
    source.context.atime_reporter.record_read(source.file)
    shift, done = at - offset, offset
    async for begin, stop in _data(source, offset, offset + length):
        await _punch_hole(destination, done + shift, begin + shift)
        await _copy(source, begin, stop, destination, shift)
        done = stop
    await _punch_hole(destination, done + shift, at + length)
    return length


async def _data(
    source: Handle, offset: int, end: int, attempts: int = _LIST_ATTEMPTS
) -> AsyncIterator[tuple[int, int]]:
    """(begin, end) of the ranges of data, in order. What lies between them is a hole, and not what other clients are
    just appending or truncating. Of a file that they keep changing, it may be data: its read finds that out."""
    change, at = source.file.change, offset
    async for begin, stop in _closed_by(end, data_ranges(source, offset, end)):
        # A new one each time: to it, two equal answers mean that the list between them is right.
        retry = HoleRetry(source.context, source.file, source.session)
        if at < begin and not await retry.holes_are_final(at, begin, change):
            if attempts:
                async for found in _data(source, at, begin, attempts - 1):
                    yield found
            else:
                yield at, begin
        if begin < stop:
            yield begin, stop
        at = stop


async def _closed_by(end: int, ranges: AsyncIterator[tuple[int, int]]) -> AsyncIterator[tuple[int, int]]:
    """The ranges, and an empty one at the end."""
    async for found in ranges:
        yield found
    yield end, end


async def _punch_hole(destination: Handle, begin: int, end: int) -> None:
    if begin < end:
        await allocate(destination, begin, end - begin, Allocation.ZERO_RANGE)


async def _copy(source: Handle, begin: int, end: int, destination: Handle, shift: int) -> None:
    """Copy a range of data, piece by piece."""
    are_several = (begin + shift) // PIECE_BYTES != (end + shift - 1) // PIECE_BYTES
    buffers = [np.empty(min(PIECE_BYTES, end - begin), np.uint8).data for _ in range(1 + are_several)]
    writing: asyncio.Task[None] | None = None
    try:
        while begin < end:
            # Aligned to whole chunks of the destination, which storage replaces without reading them.
            piece = min(PIECE_BYTES - (begin + shift) % PIECE_BYTES, end - begin)
            view = buffers[0][:piece]
            got = await HoleRetry(source.context, source.file, source.session).read(begin, view)
            view[got:] = bytes(piece - got)  # the source has become shorter
            if writing is not None:
                await writing
            writing = asyncio.create_task(destination.write(begin + shift, view))
            buffers.reverse()
            begin += piece
        if writing is not None:
            await writing
    finally:
        if writing is not None and not writing.done():
            await cancel_and_wait(writing)
            destination.record_write(outcome_unknown=True)
