"""What the holes are that a read has found: places where nothing was ever written, or bytes that are coming or going.

Nobody else knows but the meta service. So whoever finds a hole asks for the inode. While somebody cuts the file, or has
a place for an append there (`threefs/flux.py`), the bytes are read once more after a pause; and at once, if the file
has changed since before they were read: what was coming may have come, what was cut may have been written anew.
"""

from threefs import flux
from threefs.backoff import Backoff
from threefs.errors import DeadlineExceeded
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_client import paths
from threefs_client.context import ClientContext
from threefs_client.data.reads import ReadFile

_BACKOFF = Backoff(0.002, 0.1)


class HoleRetry:
    """Of one read of one file. What the reader's own `session` appends is no reason to wait."""

    def __init__(self, context: ClientContext, file: ReadFile, session: bytes = b"") -> None:
        self._context = context
        self._file = file
        self._session = session
        self._deadline = context.deadline()
        self._attempts = 0

    async def read(self, offset: int, view: memoryview) -> int:
        """Fill the view; fewer bytes only if the file has become shorter. Holes are zeros.

        Raises DeadlineExceeded when bytes are in flux for as long as an operation may take.
        """
        wanted = len(view)
        while wanted > 0:
            change = self._file.change
            if not await self._context.reader.read_into([(self._file, offset, view[:wanted])], self._deadline):
                return wanted
            settled = await self.holes_are_final(offset, offset + wanted, change)
            wanted = min(wanted, self._file.length - offset)
            if settled:
                break
        return max(0, wanted)

    async def holes_are_final(self, offset: int, end: int, change: int) -> bool:
        """Whether holes are what the file has there. `change` was known before they were read. If not, it may wait."""
        request = pb.StatRequest(place=paths.inode_place(self._file.inode))
        reply = await self._context.meta.call(methods.STAT, request, timeout_s=self._context.options.timeout_s)
        inode = reply.inode
        self._file.apply_inode(inode)
        end = min(end, inode.length)
        if end <= offset:
            return True
        if not flux.is_in_flux(inode, offset, end, self._session):
            return inode.change == change
        clock = self._context.clock
        if clock.monotonic() + _BACKOFF.limit_s(self._attempts) > self._deadline:
            raise DeadlineExceeded(
                f"bytes {offset} to {end} of inode {inode.inode} are being cut or appended by somebody else, "
                f"for longer than {self._context.options.timeout_s:g} s; try again later"
            )
        await clock.sleep(_BACKOFF.pause_s(self._attempts, self._context.random))
        self._attempts += 1
        return False
