"""Repeats a read that finds a hole until the hole is final.

Only the meta service knows whether bytes are just being written or removed there. While another client truncates the
file, or has reserved that range for an append (`threefs/inflight_ranges.py`), the bytes are read again after a pause.
If the file has changed since before the read, they are read again at once: appended bytes may have arrived, and a
truncated range may have been written again.
"""

from threefs.backoff import Backoff
from threefs.errors import DeadlineExceeded
from threefs.inflight_ranges import is_in_flight
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data.reads import ReadFile

_BACKOFF = Backoff(0.002, 0.1)


class HoleRetry:
    """One read of one file. It does not wait for appends of the reader's own `session`."""

    def __init__(self, context: ClientContext, file: ReadFile, session: bytes = b"") -> None:
        self._context = context
        self._file = file
        self._session = session
        self._deadline = context.deadline()
        self._attempts = 0
        self._answered: int | None = None  # the change counter in the answer before

    async def read(self, offset: int, view: memoryview) -> int:
        """Fill the view. Returns the number of bytes; fewer only if the file has become shorter. Holes are zeros.

        Raises DeadlineExceeded if bytes stay in flight until the deadline of the operation.
        """
        wanted = len(view)
        while wanted > 0:
            change = self._file.change
            if not await self._context.reader.read_into([(self._file, offset, view[:wanted])], self._deadline):
                return wanted
            final = await self.holes_are_final(offset, offset + wanted, change)
            wanted = min(wanted, self._file.length - offset)
            if final:
                break
        return max(0, wanted)

    async def wait_until_still(self, offset: int, end: int) -> None:
        """Wait until nobody truncates the file or appends within this range. Raises DeadlineExceeded."""
        while not await self.holes_are_final(offset, end, None):
            pass

    async def holes_are_final(self, offset: int, end: int, change: int | None) -> bool:
        """Whether holes in this range are final. If not, it pauses as needed, and the read must be repeated. `change`
        is the change counter that was known before the read; None if there was none."""
        request = pb.StatRequest(place=paths.inode_place(self._file.inode))
        reply = await self._context.meta.call(methods.STAT, request, timeout_s=self._context.options.timeout_s)
        inode = reply.inode
        self._file.apply_inode(inode, self._context.lease.number)
        end = min(end, inode.length)
        if end <= offset:
            return True
        before, self._answered = self._answered, inode.change
        if not is_in_flight(inode, offset, end, self._session):
            # Two equal answers will do: a restore takes the counter back, and the file keeps what it knew for a while.
            return change is None or inode.change in (change, before)
        clock = self._context.clock
        if clock.monotonic() + _BACKOFF.limit_s(self._attempts) > self._deadline:
            raise DeadlineExceeded(
                f"bytes {offset} to {end} of inode {inode.inode} are being truncated or appended by another client, "
                f"for longer than {self._context.options.timeout_s:g} s; try again later"
            )
        await clock.sleep(_BACKOFF.pause_s(self._attempts, self._context.random))
        self._attempts += 1
        return False
