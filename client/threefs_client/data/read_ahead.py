"""Read-ahead of a file object: the pieces of the file that were asked for before its reader needs them.

`ReadAheadWindow` decides what to ask for. A read that finds its bytes here needs no event loop: the blocking file
object serves it in the caller's thread. Therefore only the loop changes the pieces, as one new tuple, and other threads
only look.
"""

import asyncio
import re
from collections import deque
from typing import Protocol

import numpy as np

from threefs.errors import ThreefsError
from threefs_client.data.read_ahead_window import ReadAheadWindow

_NEWLINE = re.compile(rb"\n")
_NEVER = 1 << 63


class ReadAheadBudget:
    """The bytes that all files of a connection together may have read ahead.

    Only the event loop takes. Pieces give back when their memory is freed, in whatever thread that happens.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._returned: deque[int] = deque()  # whose methods are atomic, also within each other

    @property
    def used_bytes(self) -> int:
        return self._used - sum(self._returned)

    def set_limit(self, limit_bytes: int) -> None:
        self._limit = limit_bytes

    def try_take(self, size: int) -> bool:
        while self._returned:
            self._used -= self._returned.popleft()
        if self._used + size > self._limit:
            return False
        self._used += size
        return True

    def give(self, size: int) -> None:
        self._returned.append(size)


class Source(Protocol):
    """The part of a handle that is needed here."""

    @property
    def length(self) -> int: ...

    async def refresh(self) -> None: ...

    async def read_into(self, offset: int, view: memoryview) -> int: ...


class _Piece:
    """A range of the file. Its memory is of nobody else, and was taken from the budget."""

    __slots__ = ("__weakref__", "_budget", "_taken", "length", "ready", "start", "task", "view")

    def __init__(self, start: int, length: int, budget: ReadAheadBudget) -> None:
        self._budget, self._taken = budget, length  # given back also if there is no memory
        self.start = start
        self.length = length  # as asked for; fewer if the file has become shorter
        self.view: memoryview = np.empty(length, np.uint8).data
        self.ready = False
        self.task: asyncio.Task[None] | None = None

    @property
    def end(self) -> int:
        return self.start + self.length

    def __del__(self) -> None:
        self._budget.give(self._taken)

    async def fill(self, source: Source) -> None:
        got = await source.read_into(self.start, self.view)
        self.length = got
        self.ready = True


class ReadAhead:
    def __init__(self, source: Source, limit_bytes: int, budget: ReadAheadBudget) -> None:
        self._source = source
        self._budget = budget
        self._window = ReadAheadWindow(limit_bytes)
        self._pieces: tuple[_Piece, ...] = ()  # one behind the other
        self._more_at = _NEVER  # where a reader in another thread has to wake the loop

    # ---- in any thread ----

    @property
    def is_empty(self) -> bool:
        """Nothing is read ahead, and nothing is about to be."""
        return not self._pieces

    @property
    def held_bytes(self) -> int:
        """Bytes that were read ahead, or are on their way."""
        return sum(piece.length for piece in self._pieces)

    def here(self, offset: int) -> memoryview:
        """The bytes from an offset on that are in memory, in one piece. Empty if there are none."""
        for piece in self._pieces:
            if piece.start <= offset < piece.end:
                return piece.view[offset - piece.start : piece.length] if piece.ready else memoryview(b"")
        return memoryview(b"")

    def line_here(self, offset: int, limit: int) -> bytes | None:
        """The line that begins at an offset, or its first `limit` bytes, if they are in one piece that is in memory. A
        negative limit is none."""
        view = self.here(offset)
        cut = 0 <= limit <= len(view)
        found = _NEWLINE.search(view, 0, limit if cut else len(view))
        if found is None and not cut:
            return None
        return bytes(view[: limit if found is None else found.end()])

    def lines_here(self, offset: int, size: int) -> bytes:
        """The whole lines within the next `size` bytes that are in memory, in one piece. Empty if there are none."""
        block = bytes(self.here(offset)[:size])
        end = block.rfind(b"\n") + 1
        return block if end == len(block) else block[:end]

    def get(self, offset: int, length: int) -> bytes | None:
        """The bytes, if all of them are in memory. Such a read needs no loop."""
        view = self.here(offset)
        if len(view) >= length:
            return bytes(view[:length])
        if not view:
            return None
        parts, missing = [view], length - len(view)
        while missing:
            offset += len(view)
            view = self.here(offset)[:missing]
            if not view:
                return None
            parts.append(view)
            missing -= len(view)
        return b"".join(parts)

    def advance(self, offset: int, length: int) -> bool:
        """A read was served from memory. Returns whether the loop should call `extend` soon."""
        if not self._window.advance(offset, length, inside=True):
            self._more_at = _NEVER
        if offset + length < self._more_at:
            return False
        self._more_at = _NEVER  # the loop is woken once
        return True

    # ---- on the loop ----

    def extend(self) -> None:
        """The reader has got to its next offset by itself: ask for more."""
        self._ask(self._window.next, 0)

    def begin(self, offset: int, length: int) -> None:
        """A read begins that is not served from memory as a whole."""
        inside = any(piece.start <= offset < piece.end for piece in self._pieces)
        if not inside and self._pieces:
            self.clear()
        if self._window.advance(offset, length, inside=inside):
            self._ask(offset, length)

    def moved(self, offset: int) -> None:
        """The reader has used the bytes up to this offset."""
        self._window.next = offset

    async def fetch(self, offset: int, length: int) -> memoryview:
        """Up to `length` bytes, at least one except at the end of the file. Call `begin` before."""
        view = await self._arrived(offset)
        if view:
            return view[:length]
        if offset >= self._source.length:
            await self._source.refresh()
        size = max(0, min(self._gap(offset, length), self._source.length - offset))
        view = np.empty(size, np.uint8).data
        return view[: await self._source.read_into(offset, view)] if size else view

    async def fetch_into(self, offset: int, view: memoryview) -> int:
        """The same into the caller's memory. Returns the number of bytes."""
        arrived = (await self._arrived(offset))[: len(view)]
        if arrived:
            view[: len(arrived)] = arrived
            return len(arrived)
        return await self._source.read_into(offset, view[: self._gap(offset, len(view))])

    def clear(self) -> None:
        """Drop everything: the file is written, or may have changed."""
        self._drop()
        self._window.clear()

    def _gap(self, offset: int, length: int) -> int:
        """How many of these bytes are not asked for."""
        return min([length, *(piece.start - offset for piece in self._pieces if piece.start > offset)])

    async def _arrived(self, offset: int) -> memoryview:
        """The bytes from an offset on in its piece. Empty if nobody has asked for them, or they could not be read."""
        for piece in self._pieces:
            if piece.start <= offset < piece.end:
                break
        else:
            return memoryview(b"")
        if not piece.ready and piece.task is not None:
            await asyncio.wait([piece.task])  # a reader that is cancelled leaves it to the next one
        if piece.ready and offset < piece.end:
            return piece.view[offset - piece.start : piece.length]
        self.clear()  # it failed: the caller reads it by itself, and gets an error of its own
        return memoryview(b"")

    def _ask(self, offset: int, length: int) -> None:
        pieces = [piece for piece in self._pieces if piece.end > offset]
        for start, size in self._window.ask(offset, length, self._source.length):
            if not self._budget.try_take(size):  # the reader goes on without, and tries again at the end of this
                self._window.end = start
                self._pieces, self._more_at = tuple(pieces), _NEVER
                return
            piece = _Piece(start, size, self._budget)
            piece.task = asyncio.create_task(self._fill(piece))
            pieces.append(piece)
        self._pieces = tuple(pieces)
        self._more_at = self._window.more_at if self._window.end < self._source.length else _NEVER

    async def _fill(self, piece: _Piece) -> None:
        asked = piece.length
        try:
            await piece.fill(self._source)
        except ThreefsError:
            return  # a reader that comes to it reads it again
        if piece.length < asked:
            self._pieces = tuple(other for other in self._pieces if other.start <= piece.start)  # the file has ended
            self._window.clear()

    def _drop(self) -> None:
        dropped, self._pieces = self._pieces, ()
        self._more_at = _NEVER
        for piece in dropped:
            if piece.task is not None:
                piece.task.cancel()
