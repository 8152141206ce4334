"""What has been changed here, or heard of more freshly. An answer that was asked for before may show it as it was.

No I/O happens here.
"""

from typing import TypeAlias

from threefs.bounded_dict import BoundedDict

#: Bounds the memory. Of what was asked for before the last so many, nothing is believed.
MOST_TOUCHED = 8192

#: An inode; or a name in a directory, which may stand for another inode from then on.
Thing: TypeAlias = int | tuple[int, bytes]


class InvalidationLog:
    def __init__(self) -> None:
        self.mark = 0  # of now: whoever asks takes it along
        self._marks = BoundedDict[Thing, int](MOST_TOUCHED)
        self._forgotten = 0  # up to there nothing is known

    def note(self, thing: Thing) -> None:
        self.mark += 1
        evicted = self._marks.put(thing, self.mark)
        if evicted is not None:
            self._forgotten = evicted[1]

    def since(self, mark: int) -> set[Thing] | None:
        """What was touched since then. None: that is not known any more."""
        if mark < self._forgotten:
            return None
        touched: set[Thing] = set()
        for thing, at in reversed(self._marks.items()):
            if at <= mark:
                break
            touched.add(thing)
        return touched
