"""What one file of a simulated disk holds: its bytes now, and all that a power cut may take back.

Only pages that were written are kept. Of each write that is not durable yet it remembers what was there before, by
whole sectors, because a disk writes whole sectors or nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.harness.seeded_random import SeededRandom
from threefs.checksums import Buffer
from threefs.errors import NoSpace

SECTOR_BYTES = 512
#: Room on the disk comes in units of this size, and so do the pages that are kept.
UNIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class _Undo:
    """What a write took the place of. It begins and ends at sectors."""

    number: int
    offset: int
    before: bytes


class Content:
    """Changes are numbered; `sync` makes all up to a number durable."""

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self.size = 0
        self.number = 0  # of the newest change
        self.unreserved = 0  # units that a write had to find room for, because nothing had reserved it
        self._free_bytes = free_bytes
        self._pages: dict[int, bytearray] = {}
        self._room: set[int] = set()  # numbers of units
        self._undo: list[_Undo] = []
        self._sizes: list[tuple[int, int]] = []  # (number of the change that made it grow, size before)

    def allocated(self) -> int:
        return len(self._room) * UNIT_BYTES

    def read(self, offset: int, into: memoryview) -> int:
        end = max(offset, min(offset + len(into), self.size))
        for unit, begin, stop in _split(offset, end):
            page = self._pages.get(unit)
            at = unit * UNIT_BYTES + begin - offset
            into[at : at + stop - begin] = bytes(stop - begin) if page is None else memoryview(page)[begin:stop]
        return end - offset

    def bytes_at(self, offset: int, length: int) -> bytes:
        into = bytearray(length)
        return bytes(into[: self.read(offset, memoryview(into))])

    def write(self, offset: int, data: Buffer) -> None:
        """Raises NoSpace; then nothing was changed."""
        end = offset + len(data)
        if end == offset:
            return
        self.unreserved += self._take_room(offset, end)
        self._grow(end)
        begin, stop = offset - offset % SECTOR_BYTES, end + -end % SECTOR_BYTES
        self._undo.append(_Undo(self.number, begin, self._bytes(begin, stop)))
        self._put(offset, data)

    def allocate(self, offset: int, length: int) -> None:
        """Raises NoSpace; then nothing was changed."""
        self._take_room(offset, offset + length)
        self._grow(offset + length)

    def release(self, offset: int, length: int) -> None:
        """It is as if nothing had ever been written there: no power cut brings old bytes back."""
        end = min(offset + length, self.size + -self.size % UNIT_BYTES)
        for unit, begin, stop in _split(offset, end):
            if stop - begin == UNIT_BYTES:
                self._room.discard(unit)
                self._pages.pop(unit, None)
            elif unit in self._pages:
                self._pages[unit][begin:stop] = bytes(stop - begin)
        self._undo = [rest for undo in self._undo for rest in _outside(undo, offset, end)]

    def sync(self, number: int) -> None:
        """What was changed up to that number is durable."""
        self._undo = [undo for undo in self._undo if undo.number > number]
        self._sizes = [(changed, size) for changed, size in self._sizes if changed > number]

    def fail_sync(self, number: int, random: SeededRandom) -> None:
        """The pages count as clean from now on, but of their sectors some are lost."""
        newer = {sector for undo in self._undo if undo.number > number for sector in _sectors(undo)}
        self._revert([undo for undo in self._undo if undo.number <= number], random, kept=newer)
        self._undo = [undo for undo in self._undo if undo.number > number]

    def forget_unsynced(self, random: SeededRandom) -> None:
        """Each sector of a write that was not synced is on the disk, or is not. So is the size, as it was at some
        moment since the last sync."""
        self._revert(self._undo, random, kept=set())
        self._undo = []
        sizes = [size for _, size in self._sizes] + [self.size]
        self._sizes = []
        self._shrink(sizes[random.below(len(sizes))])

    def copied(self) -> "Content":
        """The same bytes, all of them durable."""
        copy = Content(self._free_bytes)
        copy.size = self.size
        copy._pages = {unit: bytearray(page) for unit, page in self._pages.items()}
        copy._room = set(self._room)
        return copy

    def flip(self, bit: int) -> None:
        """Bit rot."""
        at = bit // 8
        self._put(at, bytes([self.bytes_at(at, 1)[0] ^ 1 << bit % 8]))

    def _grow(self, size: int) -> None:
        self.number += 1
        if size > self.size:
            self._sizes.append((self.number, self.size))
            self.size = size

    def _shrink(self, size: int) -> None:
        self.size = size
        units = -(-size // UNIT_BYTES)
        self._room = {unit for unit in self._room if unit < units}
        self._pages = {unit: page for unit, page in self._pages.items() if unit < units}
        rest = size % UNIT_BYTES
        if rest and units - 1 in self._pages:
            self._pages[units - 1][rest:] = bytes(UNIT_BYTES - rest)

    def _take_room(self, begin: int, end: int) -> int:
        missing = set(range(begin // UNIT_BYTES, -(-end // UNIT_BYTES))) - self._room
        if missing:
            if len(missing) * UNIT_BYTES > self._free_bytes():
                raise NoSpace("the disk is full")
            self._room |= missing
        return len(missing)

    def _revert(self, undone: list[_Undo], random: SeededRandom, *, kept: set[int]) -> None:
        for undo in reversed(undone):
            for at, sector in enumerate(_sectors(undo)):
                if sector not in kept and random.chance(0.5):
                    self._put(sector * SECTOR_BYTES, undo.before[at * SECTOR_BYTES : (at + 1) * SECTOR_BYTES])

    def _bytes(self, begin: int, end: int) -> bytes:
        """Whatever the size of the file is."""
        parts = []
        for unit, start, stop in _split(begin, end):
            page = self._pages.get(unit)
            parts.append(bytes(stop - start) if page is None else bytes(memoryview(page)[start:stop]))
        return b"".join(parts)

    def _put(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        for unit, begin, stop in _split(offset, offset + len(view)):
            page = self._pages.get(unit)
            if page is None:
                page = self._pages[unit] = bytearray(UNIT_BYTES)
            at = unit * UNIT_BYTES + begin - offset
            page[begin:stop] = view[at : at + stop - begin]


def _split(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(unit, begin within it, end within it)"""
    while begin < end:
        unit, within = divmod(begin, UNIT_BYTES)
        stop = min(UNIT_BYTES, within + end - begin)
        yield unit, within, stop
        begin += stop - within


def _sectors(undo: _Undo) -> range:
    first = undo.offset // SECTOR_BYTES
    return range(first, first + len(undo.before) // SECTOR_BYTES)


def _outside(undo: _Undo, begin: int, end: int) -> Iterator[_Undo]:
    """What of it lies before `begin` or from `end` on, to whole sectors."""
    first, last = undo.offset, undo.offset + len(undo.before)
    begin, end = begin - begin % SECTOR_BYTES, end + -end % SECTOR_BYTES
    if begin >= last or end <= first:
        yield undo
        return
    if first < begin:
        yield _Undo(undo.number, first, undo.before[: begin - first])
    if end < last:
        yield _Undo(undo.number, end, undo.before[end - first :])
