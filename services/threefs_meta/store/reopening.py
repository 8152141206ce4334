"""What a service does at its start while its embedded store is opened again, because it has met damage, and while its
store takes no changes for now.

Whatever uses the store first finds the damage out, and so at each start. A start that ended there would never succeed.
And each start that ends while PostgreSQL waits for a standby leaves one more process of the server waiting, until none
is left for those who read.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from threefs.env.clock import Clock
from threefs.errors import MaybeCommitted, Throttled, Unavailable

_OPENING_S = 30.0
_PAUSE_S = 0.2

_LOG = structlog.get_logger()

T = TypeVar("T")


async def outlast_reopening(work: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """What `work` returns. It is done again until the store is open, also if a change of it may have been made, and as
    long as the store takes no changes."""
    deadline = clock.monotonic() + _OPENING_S
    last_error = ""
    while True:
        try:
            return await work()
        except (Unavailable, MaybeCommitted, Throttled) as error:
            if isinstance(error, Throttled) or isinstance(error.__cause__, Throttled):
                deadline = clock.monotonic() + _OPENING_S  # what follows this is another failure
                if str(error) != last_error:
                    last_error = str(error)
                    _LOG.warning("waiting until the store takes changes", error=last_error)
            elif clock.monotonic() > deadline:
                raise
        await clock.sleep(_PAUSE_S)
