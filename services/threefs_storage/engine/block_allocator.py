"""The block allocator of one data file. It is in memory only, and rebuilt from the records when the engine opens.

A block is free, in use, freed, withheld, or a hole. A hole is free, but has no room on the disk yet. A withheld block
was freed, and is not reused: it cannot be read.

A freed block is reused only when the record that gave it up is durable, and no read has it pinned: after a crash the
old record would return, and name a block with other content.
"""

import re
from collections import deque

_FREE, _USED, _FREED, _HOLE, _WITHHELD = 0, 1, 2, 3, 4
_FREE_RUNS = re.compile(rb"\x00+")
_HOLE_RUNS = re.compile(rb"\x03+")


class BlockAllocator:
    def __init__(self) -> None:
        self.used = 0  # blocks in use, with those that are freed but not reusable
        self.holes = 0
        self._states = bytearray()
        self._hint = 0  # no free slot lies below
        self._freed: deque[tuple[int, int]] = deque()  # (number of the write that gave it up, slot)
        self._pins: dict[int, int] = {}
        self._first_free = self._least_free = 0  # free slots at the last `punch_unneeded`, and the fewest since

    @property
    def capacity(self) -> int:
        """The slots of the file."""
        return len(self._states)

    @property
    def free_slots(self) -> int:
        """Blocks that can be taken at once."""
        return len(self._states) - self.used - self.holes

    def grow(self, slots: int, *, holes: bool = False) -> None:
        """Add slots at the end."""
        self._states.extend(bytes([_HOLE if holes else _FREE]) * slots)
        self.holes += slots * holes

    def claim(self, slot: int) -> None:
        """Mark a block that a record names."""
        if slot >= len(self._states):
            self.grow(slot + 1 - len(self._states))
        assert self._states[slot] in (_FREE, _HOLE), f"two records name slot {slot}"
        self.holes -= self._states[slot] == _HOLE
        self._states[slot] = _USED
        self.used += 1
        assert self.used + self.holes <= len(self._states), "a slot has one state"

    def take(self, durable: int) -> int | None:
        """The lowest free slot, or None. Writes of the table up to number `durable` survive a crash."""
        self._reclaim(durable)
        slot = self._states.find(_FREE, self._hint)
        if slot < 0:
            self._hint = len(self._states)
            return None
        self._hint = slot + 1
        self._states[slot] = _USED
        self.used += 1
        self._least_free = min(self._least_free, self.free_slots)
        return slot

    def free(self, slot: int, number: int) -> None:
        """Give up a block with write `number`."""
        assert self._states[slot] == _USED, f"slot {slot} is freed twice"
        self._states[slot] = _FREED
        self._freed.append((number, slot))

    def withhold(self, slot: int) -> bool:
        """Keep a freed block in use after all. Returns whether it is one, or was kept before."""
        if self._states[slot] == _FREED:
            self._freed = deque(freed for freed in self._freed if freed[1] != slot)
            self._states[slot] = _WITHHELD
        return self._states[slot] == _WITHHELD

    def punch_holes(self, durable: int) -> list[tuple[int, int]]:
        """Make holes of all free blocks. Returns the first slot and the number of slots of each hole."""
        self._reclaim(durable)
        runs = [(run.start(), run.end() - run.start()) for run in _FREE_RUNS.finditer(self._states)]
        for slot, count in runs:
            self._states[slot : slot + count] = bytes([_HOLE]) * count
            self.holes += count
        return runs

    def punch_unneeded(self, durable: int, keep: int) -> list[tuple[int, int]]:
        """Make holes of the free blocks that were not needed since the last call, the highest first. `keep` blocks
        stay, and as many as were needed. Returns the first slot and the number of slots of each hole."""
        self._reclaim(durable)
        needed = max(0, self._first_free - self._least_free)
        left = min(self._least_free, self.free_slots) - needed - keep
        runs = []
        for run in reversed([*_FREE_RUNS.finditer(self._states)] if left > 0 else []):
            count = min(left, run.end() - run.start())
            if count == 0:
                break
            slot = run.end() - count
            self._states[slot : slot + count] = bytes([_HOLE]) * count
            self.holes += count
            left -= count
            runs.append((slot, count))
        self._first_free = self._least_free = self.free_slots
        return runs

    def all_holes(self) -> list[tuple[int, int]]:
        """The first slot and the number of slots of each run of holes."""
        return (
            [(run.start(), run.end() - run.start()) for run in _HOLE_RUNS.finditer(self._states)] if self.holes else []
        )

    def first_hole(self, most: int) -> tuple[int, int] | None:
        """The first slot and the number of slots of the lowest run of holes, cut at `most` slots."""
        run = _HOLE_RUNS.search(self._states) if self.holes else None
        return None if run is None else (run.start(), min(most, run.end() - run.start()))

    def fill(self, slot: int, count: int) -> None:
        """Make free blocks of these holes, which have room on the disk now."""
        assert self._states[slot : slot + count] == bytes([_HOLE]) * count, "only holes are filled"
        self._states[slot : slot + count] = bytes([_FREE]) * count
        self.holes -= count
        self._hint = min(self._hint, slot)

    def pin(self, slot: int) -> None:
        self._pins[slot] = self._pins.get(slot, 0) + 1

    def is_pinned(self, slot: int) -> bool:
        return slot in self._pins

    def unpin(self, slot: int) -> None:
        count = self._pins[slot] - 1
        if count:
            self._pins[slot] = count
        else:
            del self._pins[slot]

    @property
    def freed(self) -> int:
        """Freed blocks that wait for a record to become durable, or for their readers."""
        return len(self._freed)

    def _reclaim(self, durable: int) -> None:
        pinned = []
        while self._freed and self._freed[0][0] <= durable:
            number, slot = self._freed.popleft()
            if slot in self._pins:
                pinned.append((number, slot))
                continue
            self._states[slot] = _FREE
            self._hint = min(self._hint, slot)
            self.used -= 1
            assert self.used >= 0, "only used blocks are freed"
        self._freed.extendleft(reversed(pinned))
