"""A pause whose length may change while it lasts, because an administrator sets another one."""

from collections.abc import Callable

from threefs.env.clock import Clock

#: A new length counts within this time.
LOOK_S = 5.0


async def pause(clock: Clock, began: float, length_s: Callable[[], float]) -> None:
    """Wait until `length_s` have passed since the moment `began` of the clock."""
    while True:
        rest_s = max(0.0, began + length_s() - clock.monotonic())
        await clock.sleep(min(rest_s, LOOK_S))
        if rest_s <= LOOK_S:
            return
