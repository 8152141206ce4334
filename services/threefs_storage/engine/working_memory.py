"""The memory in which the engines of a process work, besides the payloads that its server keeps account of.

All targets of the process share it: a disk may have a hundred of them. Each kind of work has its own bound, and none
waits for itself, so all of it comes to an end:

- *changes*: chunks that are put together of old and new content, and payloads that lie where the disk cannot take them.
  Such a buffer is lent while the disk writes it, and never while a call to another process is waited for.
- *reads*: whole checksum blocks of which a part is read. These, too, wait for nothing but the disk.
- *joined*: payloads of several pieces as they are laid over a chunk. Only the head of a chain lends them, for changes
  of clients, until all replicas have them, so they wait for other processes. What the others do for such a change, and
  for all that they take from a predecessor, needs no such buffer: services that are heads of chains towards each
  other never wait for each other's. A target has a share of them, so that a chain whose successor does not answer does
  not stop the others.
"""

from threefs.env.buffers import BufferPool
from threefs_storage.engine.scratch import Scratch, ScratchShare

CHANGES_BYTES = 128 << 20
READS_BYTES = 64 << 20
JOINED_BYTES = 128 << 20
_JOINED_SHARES = 4
#: Buffers that nobody uses now.
KEPT_BYTES = 64 << 20
#: All of it.
MOST_BYTES = CHANGES_BYTES + READS_BYTES + JOINED_BYTES + KEPT_BYTES


class WorkingMemory:
    """One per process."""

    def __init__(self) -> None:
        self.buffers = BufferPool(KEPT_BYTES)
        self.changes = Scratch(self.buffers, CHANGES_BYTES)
        self.reads = Scratch(self.buffers, READS_BYTES)
        self._joined = Scratch(self.buffers, JOINED_BYTES)

    def joined_share(self) -> ScratchShare:
        """What one target may have of the buffers for joined payloads."""
        return ScratchShare(self._joined, JOINED_BYTES // _JOINED_SHARES)
