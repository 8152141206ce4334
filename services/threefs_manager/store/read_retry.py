"""Reading the manager's store at the beginning of a term: nothing can be served before it has worked."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from threefs.env.clock import Clock
from threefs.errors import Fenced, StrangeStore, ThreefsError

_PAUSE_S = 0.2
T = TypeVar("T")
_LOG = structlog.get_logger()


async def retry_forever(load: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Try until it works. Raises Fenced and StrangeStore, which waiting does not heal."""
    while True:
        try:
            return await load()
        except (Fenced, StrangeStore):
            raise
        except ThreefsError as error:
            _LOG.warning("the store cannot be read now", error=str(error))
            await clock.sleep(_PAUSE_S)
