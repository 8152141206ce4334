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

_INITIAL = 2
#: Listings with attributes for each without, ...
_INTERVAL = 15
#: ... and four times as many each time, up to this.
_MAX_INTERVAL = 255
#: Bounds the memory.
MAX_PROGRAMS = 1024


@dataclass(slots=True)
class _Program:
    remaining: int = _INITIAL  # listings that come with attributes
    interval: int = _INTERVAL  # so many, when somebody looks again
    probing: bool = False  # for a look, since one without


class ReaddirplusPolicy:
    def __init__(self) -> None:
        self._programs = BoundedDict[int, _Program](MAX_PROGRAMS)  # by thread

    def wants_attributes(self, program: int) -> bool:
        """Of a listing that begins."""
        state = self._programs.get(program) or _Program()
        self._programs.put(program, state)
        if state.remaining:
            state.remaining -= 1
            return True
        if state.probing:
            state.interval = _INTERVAL
        state.probing = True
        return False

    def record_lookup(self, program: int) -> None:
        """Somebody, at an entry of a directory that it had just listed without attributes."""
        state = self._programs.get(program)
        if state is not None and state.probing:
            state.remaining, state.probing = state.interval, False
            state.interval = min(4 * state.interval, _MAX_INTERVAL)
