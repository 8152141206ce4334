"""Whether a program looks at the entries of the directories that it lists. No I/O happens here.

The kernel asks for attributes with every listing, whoever reads it, and they cost more than names. Programs that walk
through samples want names alone, others look at every entry, and a look that the kernel must ask for costs much more
than attributes that came along. So of a program that is not known, the first listings come with attributes, and then
one without shows whether somebody looks at its entries: if nobody does, there are names alone from then on, and else
attributes, for longer each time that it shows the same. What the kernel was told with a listing it does not ask for,
so only those without teach.
"""

from dataclasses import dataclass

from threefs.bounded_dict import BoundedDict

_FIRST = 2
#: Listings with attributes for each without, ...
_BELIEVED = 15
#: ... and four times as many each time, up to this.
_MOST_BELIEVED = 255
#: Bounds the memory.
MOST_PROGRAMS = 1024


@dataclass(slots=True)
class _Habit:
    left: int = _FIRST  # listings that come with attributes
    believed: int = _BELIEVED  # so many, when somebody looks again
    waits: bool = False  # for a look, since one without


class ReaddirplusPolicy:
    def __init__(self) -> None:
        self._programs = BoundedDict[int, _Habit](MOST_PROGRAMS)  # by thread

    def wants_attributes(self, program: int) -> bool:
        """Of a listing that begins."""
        habit = self._programs.get(program) or _Habit()
        self._programs.put(program, habit)
        if habit.left:
            habit.left -= 1
            return True
        if habit.waits:
            habit.believed = _BELIEVED
        habit.waits = True
        return False

    def looked(self, program: int) -> None:
        """Somebody, at an entry of a directory that it had just listed without attributes."""
        habit = self._programs.get(program)
        if habit is not None and habit.waits:
            habit.left, habit.waits = habit.believed, False
            habit.believed = min(4 * habit.believed, _MOST_BELIEVED)
