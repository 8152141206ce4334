"""fallocate(2) for a file that is open for writing: reserves room, punches a hole, or zeros a range.

Storage never writes in place, so it cannot keep room for bytes that do not exist yet. To reserve means to set the
length, within the quota, after a check of the free space. A range becomes zeros by the removal of its chunks; a chunk
that lies only partly in it is overwritten with zeros there. Chunks that do not exist stay absent.
"""

import enum
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from threefs import layout as layouts
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import InvalidArgument, NoSpace, NotSupported
from threefs.ids import ChunkId, InodeId
from threefs.layout import chains_reached
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs_client.data.handles import Handle


class Allocation(enum.IntFlag):
    """The operation on the range. The numbers are those of fallocate(2)."""

    RESERVE = 0  # the file becomes as long as the end of the range, if it is shorter
    KEEP_LENGTH = 1  # the length stays
    PUNCH_HOLE = 2  # the range becomes a hole; only together with KEEP_LENGTH
    ZERO_RANGE = 16  # the range becomes zeros, and the file is extended to its end


#: The free space is checked when the file grows by at least this many bytes.
_SPACE_CHECK_BYTES = 64 << 20
_SUPPORTED = {
    Allocation.RESERVE,
    Allocation.KEEP_LENGTH,
    Allocation.PUNCH_HOLE | Allocation.KEEP_LENGTH,
    Allocation.ZERO_RANGE,
    Allocation.ZERO_RANGE | Allocation.KEEP_LENGTH,
}


async def allocate(handle: Handle, offset: int, length: int, mode: int = Allocation.RESERVE) -> None:
    """Allocate, punch or zero the range. The result is durable on all replicas, and the length of earlier writes of the
    handle is reported.

    Raises InvalidArgument, NotSupported for other modes, FileTooLarge, QuotaExceeded, NoSpace.
    """
    if length <= 0:
        raise InvalidArgument(f"a range to allocate has at least one byte, not {length}")
    if mode not in _SUPPORTED:
        raise NotSupported(f"fallocate does not support mode {mode:#x}; see threefs_client.Allocation")
    layouts.check_range(handle.layout.chunk_bytes, offset, length)
    handle.check_write(0, 0)  # raises unless it is open for writing
    await handle.sync()
    if not mode & Allocation.KEEP_LENGTH:
        await _extend(handle, offset + length)
    if mode & (Allocation.PUNCH_HOLE | Allocation.ZERO_RANGE):
        await _zero(handle, offset, offset + length)
    elif mode & Allocation.KEEP_LENGTH:
        handle.record_write()  # no byte changes, but the times do, as on local file systems
        await handle.sync()


async def _extend(handle: Handle, end: int) -> None:
    if end - handle.length >= _SPACE_CHECK_BYTES:
        space = await handle.call(methods.STAT_FS, pb.StatFsRequest())
        if (end - handle.length) * max(1, space.replicas) > space.free_bytes:
            raise NoSpace(
                f"{end - handle.length} bytes more in {space.replicas} copies do not fit: the disks have "
                f"{space.free_bytes} bytes left"
            )
    request = pb.ReserveRequest(
        mutation=handle.context.meta.mutation(), inode=handle.inode, session=handle.session, end=end
    )
    reply = await handle.call(methods.RESERVE, request)
    handle.apply_reply(reply.inode)


async def _zero(handle: Handle, offset: int, end: int) -> None:
    """Zero no further than the length that the meta service knows: bytes behind it are unsynced writes of others."""
    await handle.refresh()
    end = min(end, handle.length)
    since = handle.file.truncate_version
    try:
        async for updates in _zero_updates(handle, offset, end):
            await handle.apply(partial(_with_fence, handle, updates))
    except BaseException:  # a part of the range may be zero
        handle.record_write(outcome_unknown=True)
        raise
    handle.record_write(end, truncate_version=since)
    await handle.sync()


def _with_fence(handle: Handle, updates: list[ChunkUpdate]) -> list[ChunkUpdate]:
    return [replace(update, fence=handle.fence) for update in updates]


async def _zero_updates(handle: Handle, offset: int, end: int) -> AsyncIterator[list[ChunkUpdate]]:
    layout, chunk_bytes = handle.layout, handle.layout.chunk_bytes
    await handle.await_table()
    chains = layout.chains(handle.context.cluster.routing.tables.get(layout.table_id, ()))
    number = offset // chunk_bytes
    while number * chunk_bytes < end:
        page, following = await handle.context.chunks.page(
            layout,
            InodeId(handle.inode),
            number,
            chains=chains_reached(layout, end),
            timeout_s=handle.context.options.timeout_s,
        )
        updates = []
        for number, size in page:
            first = number * chunk_bytes
            if first >= end:
                break
            begin, stop = max(offset - first, 0), min(end - first, size)
            chain, chunk = chains[number % layout.stripe], ChunkId(handle.inode, number)
            # A writer that makes the file longer at the same time must not lose bytes: a chunk is removed only if the
            # range covers all that the chunk could ever hold.
            if begin == 0 and first + chunk_bytes <= end:
                updates.append(ChunkUpdate(chain, chunk, storage_pb2.REMOVE, chunk_bytes))
            elif begin < stop:
                zeros = bytes(stop - begin)
                updates.append(ChunkUpdate(chain, chunk, storage_pb2.WRITE, chunk_bytes, begin, len(zeros), zeros))
        if updates:
            yield updates
        if not following:
            break
        number = following
