"""What a service does at its start while its embedded store is opened again, because it has met damage.

Whatever uses the store first finds the damage out, and so at each start. A start that ended there would never succeed.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from threefs.env.clock import Clock
from threefs.errors import MaybeCommitted, Unavailable

_OPENING_S = 30.0
_PAUSE_S = 0.2

T = TypeVar("T")


async def outlast_reopening(work: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """What `work` returns. It is done again until the store is open, also if a change of it may have been made."""
    deadline = clock.monotonic() + _OPENING_S
    while True:
        try:
            return await work()
        except (Unavailable, MaybeCommitted):
            if clock.monotonic() > deadline:
                raise
        await clock.sleep(_PAUSE_S)
