"""Chains that have not taken a removal in its time: how long the garbage collector leaves each of them out.

Whatever waits for such a chain holds a place that other files could be freed in. So the chain is tried by one file at a
time, with less patience, and ever less often, until it takes a removal again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from threefs.ids import ChainId
from threefs_meta.context import CHUNKS_TIMEOUT_S

_TRY_S = 5.0  # how long a chain is waited for that has failed before
_FIRST_TICKS, _MAX_TICKS = 1, 8  # for which it is left out: the first time, and at most. They double each time.


@dataclass(frozen=True, slots=True)
class _Pause:
    until: int  # tick
    ticks: int


class ChainBackoff:
    def __init__(self, tick: Callable[[], int]) -> None:
        self._tick = tick
        self._pauses: dict[ChainId, _Pause] = {}

    def begin(self, chain: ChainId) -> float | None:
        """How long a removal may wait for the chain now. None: it is left out."""
        pause = self._pauses.get(chain)
        if pause is None:
            return CHUNKS_TIMEOUT_S
        if self._tick() < pause.until:
            return None
        ticks = min(2 * pause.ticks, _MAX_TICKS)
        self._pauses[chain] = _Pause(self._tick() + ticks, ticks)  # others leave it out while this one tries
        return _TRY_S

    def failed(self, chain: ChainId) -> None:
        """Those that wait for a chain at the same time count once: its pause has begun then."""
        self._pauses.setdefault(chain, _Pause(self._tick() + _FIRST_TICKS, _FIRST_TICKS))

    def succeeded(self, chain: ChainId) -> None:
        self._pauses.pop(chain, None)
