"""Finds the data and the holes of a file, from the list of its chunks.

A chunk that does not exist is a hole, and so is the range behind the stored bytes of a chunk. So a hole is found only
if it is a whole chunk, or the end of one.
"""

from collections.abc import AsyncIterator

from threefs.errors import NoDataThere
from threefs.ids import InodeId
from threefs.layout import chains_reached
from threefs_client.data.handles import Handle


async def data_ranges(handle: Handle, offset: int, end: int) -> AsyncIterator[tuple[int, int]]:
    """(begin, end) of the ranges of data, in order. Adjacent chunks of one page come as one range."""
    chunk_bytes = handle.layout.chunk_bytes
    number, begin, stop = offset // chunk_bytes, offset, offset
    while number * chunk_bytes < end:
        page, following = await handle.context.chunks.page(
            handle.layout,
            InodeId(handle.inode),
            number,
            chains=chains_reached(handle.layout, end),
            timeout_s=handle.context.options.timeout_s,
        )
        for number, length in page:
            start = max(offset, number * chunk_bytes)
            if start >= end:
                break
            if start != stop:
                if stop > begin:
                    yield begin, stop
                begin = stop = start
            stop = max(stop, min(number * chunk_bytes + length, end))
        if not following:
            break
        number = following
    if stop > begin:
        yield begin, stop


async def seek_data(handle: Handle, offset: int) -> int:
    """The first byte of data from `offset` on. Raises NoDataThere when there is only a hole up to the end."""
    end = await _end(handle, offset)
    async for begin, _ in data_ranges(handle, offset, end):
        return begin
    raise NoDataThere(f"{handle.name or f'inode {handle.inode}'} has no data from byte {offset} on")


async def seek_hole(handle: Handle, offset: int) -> int:
    """The first byte of a hole from `offset` on; behind all data lies one. Raises NoDataThere at the end or beyond."""
    end = await _end(handle, offset)
    at = offset
    async for begin, stop in data_ranges(handle, offset, end):
        if begin > at:
            break
        at = stop
    return at


async def _end(handle: Handle, offset: int) -> int:
    if offset >= handle.length:
        await handle.refresh()
    if not 0 <= offset < handle.length:
        raise NoDataThere(f"byte {offset} is not within the {handle.length} bytes of inode {handle.inode}")
    return handle.length
