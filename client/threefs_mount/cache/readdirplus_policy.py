"""Whether the listings of a program come with attributes (readdirplus). No I/O happens here.

The kernel asks for attributes with every listing, and they cost more than names. Some programs use only the names.
Others look up every entry, and a lookup that reaches the mount costs much more than attributes that came with the
listing. So the first listings of a program come with attributes. Then one without attributes is a probe: if no lookup
of its entries follows, later listings have only names. If one follows, later listings have attributes again, for longer
after each such probe. Only a listing without attributes shows this, because the kernel does not look up an entry whose
attributes it has.
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
    remaining: int = _INITIAL  # listings with attributes before the next probe
    interval: int = _INTERVAL  # the same, after a probe that a lookup followed
    probing: bool = False  # a listing had no attributes, and no lookup has followed yet


class ReaddirplusPolicy:
    def __init__(self) -> None:
        self._programs = BoundedDict[int, _Program](MAX_PROGRAMS)  # by thread

    def wants_attributes(self, program: int) -> bool:
        """A listing of the program begins: whether it comes with attributes."""
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
        """An entry of a directory was looked up that the program had just listed without attributes."""
        state = self._programs.get(program)
        if state is not None and state.probing:
            state.remaining, state.probing = state.interval, False
            state.interval = min(4 * state.interval, _MAX_INTERVAL)
