"""Pools of page-aligned buffers, which are reused: the page faults of a new MiB cost more than copying it.

Sizes are powers of two. A pool keeps a bounded number of bytes, and frees buffers that come back beyond that.

The rule for every buffer of a pool, and for memory that a caller lends to a call (I14): **a buffer belongs to a call
until every piece of work that may touch it has ended.** Work that may touch it is a thread of the disk, a message of
which the kernel has not taken the last byte, a payload that is still being received, and every coroutine to which a
view of it was given. A cancelled `await` ends none of these by itself. So

- the code that takes a buffer gives it back, once, in the step that knows that all of that work has ended;
- code that starts several coroutines on one buffer waits for all of them, also when one fails and when it is cancelled
  itself (`asyncio.TaskGroup`, or `gather` with `return_exceptions`; never a bare `gather`);
- disk work that has begun is waited for before a cancellation is passed on (`threefs.env.disk.run_to_completion`);
- a frame stream neither reads nor writes the memory of a call whose future is done (`threefs.rpc.frame_stream`).

A poisoning pool checks this rule: it overwrites a buffer that comes back, and asserts that the buffer is unchanged when
it is lent again. The tests, and the programs that they start, run with `THREEFS_POISON_BUFFERS=1` in the environment.
"""

import mmap
import os

MIN_BUFFER_BYTES = 4096

#: If this variable of the environment is "1", the pools of the process poison.
POISON_VARIABLE = "THREEFS_POISON_BUFFERS"
#: Every byte of a poisoned buffer.
POISON = 0xDB
_POISONED = bytes([POISON]) * MIN_BUFFER_BYTES


class BufferPool:
    """Lends whole mappings, so that O_DIRECT can use them. Not thread-safe: one event loop owns a pool."""

    def __init__(self, keep_bytes: int = 256 << 20, *, poison: bool | None = None) -> None:
        """`keep_bytes` is the maximum that the pool keeps. Without `poison` the environment decides whether it
        poisons."""
        self.lent_bytes = 0
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._free: dict[int, list[memoryview]] = {}
        self._lent: set[int] = set()  # identities, so that a part of a buffer, or one that is given twice, is detected
        self._poison = os.environ.get(POISON_VARIABLE) == "1" if poison is None else poison

    @property
    def lent(self) -> int:
        """The number of buffers that are lent now."""
        return len(self._lent)

    def take(self, length_bytes: int) -> memoryview:
        """A writable, page-aligned view of at least `length_bytes`. Its old content is still in it."""
        size = size_class(length_bytes)
        free = self._free.get(size)
        if free:
            self._kept_bytes -= size
            buffer = free.pop()
            if self._poison:
                assert bytes(buffer) == _poisoned(size), "a buffer was written to after it came back"
        else:
            buffer = memoryview(mmap.mmap(-1, size))
        self._lent.add(id(buffer))
        self.lent_bytes += size
        return buffer

    def give(self, buffer: memoryview) -> None:
        """Take back the whole view that `take` returned. No code may touch it after this."""
        assert id(buffer) in self._lent, "a buffer came back twice, or is not of this pool"
        self._lent.remove(id(buffer))
        size = len(buffer)
        self.lent_bytes -= size
        if self._poison:
            buffer[:] = _poisoned(size)
        if self._kept_bytes + size > self._keep_bytes:
            return  # the mapping is freed with its last reference
        self._kept_bytes += size
        self._free.setdefault(size, []).append(buffer)


def _poisoned(size: int) -> bytes:
    return _POISONED if size == MIN_BUFFER_BYTES else _POISONED * (size // MIN_BUFFER_BYTES)


def size_class(length_bytes: int) -> int:
    """The power of two that holds `length_bytes`, at least a page."""
    return max(MIN_BUFFER_BYTES, 1 << (length_bytes - 1).bit_length()) if length_bytes > 0 else MIN_BUFFER_BYTES
