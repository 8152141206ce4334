"""The reading side of a file object: its position, what is read ahead of it, and the lines that are cut off behind it.

A read that finds its bytes in memory needs no event loop (`..._now`, in any thread, one at a time).
"""

import io

from threefs_client.data.read_ahead import ReadAhead, ReadAheadBudget, Source

#: Bytes that a search for the end of a line reads, if nothing is read ahead.
_LINE_BYTES = 8192
#: So many bytes of lines are cut off at once at most, for a program that reads line after line.
_MAX_LINES_BYTES = 256 << 10
_NO_LINES = io.BytesIO()


class ReadStream:
    def __init__(self, source: Source, limit_bytes: int, budget: ReadAheadBudget, position: int = 0) -> None:
        self.wants_read_ahead = False  # `extend` has something to do
        self._read_ahead = ReadAhead(source, limit_bytes, budget)
        self._place = (position, _NO_LINES)  # where the cut lines begin, and these; the position is in them
        self._lines_bytes = _LINE_BYTES  # how many to cut off next

    # ---- in any thread ----

    @property
    def position(self) -> int:
        start, lines = self._place
        return start + lines.tell()

    @position.setter
    def position(self, position: int) -> None:
        """Set it, and drop the lines."""
        start, lines = self._place
        if lines is not _NO_LINES:
            self._read_ahead.moved(start + lines.tell())  # it has counted all these lines as read
            self._lines_bytes = _LINE_BYTES
        self._place = (position, _NO_LINES)

    @property
    def is_empty(self) -> bool:
        """Nothing is read ahead, and nothing is about to be."""
        return self._read_ahead.is_empty

    def read_now(self, size: int) -> bytes | None:
        """The next bytes, if all of them are in memory."""
        found = self._read_ahead.get(self.position, size)
        if found is not None:
            self._served(len(found))
        return found

    def readinto_now(self, view: memoryview) -> int | None:
        """Fill a view, if all of its bytes are in memory."""
        here = self._read_ahead.here(self.position)[: len(view)]
        if len(here) < len(view):
            return None
        view[:] = here
        self._served(len(view))
        return len(view)

    def peek_now(self) -> bytes:
        """Some of the next bytes. Empty if they are not in memory."""
        return bytes(self._read_ahead.here(self.position)[:_LINE_BYTES])

    def cut_line(self, limit: int = -1) -> bytes:
        """The next one of the lines that are cut off already, at most `limit` bytes of it. Empty if there is none."""
        return self._place[1].readline(limit)

    def readline_now(self, limit: int, *, cut: bool) -> bytes | None:
        """The next line, or its first `limit` bytes, if they are in memory. `cut`: the lines behind it may be cut off
        with it; these do not pass the checks of later reads."""
        if cut and self._cut_lines():
            return self.cut_line(limit)
        found = self._read_ahead.line_here(self.position, limit)
        if found is not None:
            self._served(len(found))
        return found

    def _cut_lines(self) -> bool:
        """Cut off the lines behind the position: the more, the more were read one after the other. Returns whether
        there are any."""
        used_up, position, size = self._place[1] is not _NO_LINES, self.position, self._lines_bytes
        lines = self._read_ahead.lines_here(position, size)
        if not lines:
            return False
        self._served(len(lines))
        self._lines_bytes = min(2 * size, _MAX_LINES_BYTES) if used_up else size
        self._place = (position, io.BytesIO(lines))
        return True

    def _served(self, length: int) -> None:
        """A read was served from memory."""
        position = self.position
        self.position = position + length
        if self._read_ahead.advance(position, length):
            self.wants_read_ahead = True

    # ---- on the loop ----

    def extend(self) -> None:
        """Read on ahead, if it is time to."""
        if self.wants_read_ahead:
            self.wants_read_ahead = False
            self._read_ahead.extend()

    def clear(self) -> None:
        """Drop everything: the file is written, or may have changed."""
        self.position = self.position
        self._read_ahead.clear()

    def advance(self, length: int) -> None:
        """The reader has read so many bytes."""
        self.position = position = self.position + length
        self._read_ahead.moved(position)

    def _begin(self, size: int) -> None:
        """A read begins that is not served from memory as a whole."""
        self.position = position = self.position
        self._read_ahead.begin(position, size)

    async def read(self, size: int) -> bytes:
        self._begin(size)
        parts = []
        while size > 0:
            got = await self._read_ahead.fetch(self.position, size)
            if not got:
                break
            self.advance(len(got))
            size -= len(got)
            parts.append(got)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    async def readinto(self, view: memoryview) -> int:
        self._begin(len(view))
        done = 0
        while done < len(view):
            got = await self._read_ahead.fetch_into(self.position, view[done:])
            if not got:
                break
            self.advance(got)
            done += got
        return done

    async def readline(self, limit: int) -> bytes:
        """A negative limit is none."""
        parts: list[bytes] = []
        while limit:
            self._begin(_LINE_BYTES)
            got = bytes(await self._read_ahead.fetch(self.position, min(limit % (1 << 63), _LINE_BYTES)))
            newline = got.find(b"\n")
            got = got if newline < 0 else got[: newline + 1]
            self.advance(len(got))
            limit -= len(got) if limit > 0 else 0
            parts.append(got)
            if newline >= 0 or not got:
                break
        return b"".join(parts)

    async def peek(self, size: int) -> bytes:
        self._begin(size)
        try:
            return bytes(await self._read_ahead.fetch(self.position, size))
        finally:
            self._read_ahead.moved(self.position)
