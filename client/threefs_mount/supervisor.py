"""The parent of the process behind a mount: it starts that anew when it was killed or has crashed.

Between the two the dead mount stays where it is: programs get ENOTCONN, and do not write into the directory below it.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

import structlog

from threefs.backoff import Backoff
from threefs.env.clock import CLOCK, Clock
from threefs_mount import mountpoints

_BACKOFF = Backoff(0.2, 30.0)
#: Whoever has served for so long begins with short pauses again.
_GOOD_S = 60.0

_LOG = structlog.get_logger()


async def supervise(command: Sequence[str], point: str, ready: Callable[[], None], *, clock: Clock = CLOCK) -> int:
    """Run `command`, which serves `point`, until that is unmounted, or SIGTERM or SIGINT, which are passed on.

    `ready` is called when it is mounted for the first time; if it never is, the command is not run again. Returns its
    last exit status.
    """
    crashes, was_ready = 0, False
    asked = asyncio.Event()  # to end, also while nothing runs
    while True:
        began = clock.monotonic()
        status, is_ready = await _run(command, (lambda: None) if was_ready else ready, asked)
        was_ready = was_ready or is_ready
        if status == 0 or not was_ready or asked.is_set():
            return status
        _LOG.error("the process behind the mount has ended: it is started again", status=status, mountpoint=point)
        crashes = 0 if clock.monotonic() - began > _GOOD_S else crashes + 1
        was_dead = mountpoints.find(point) is not None
        if await _asked_within(_BACKOFF.limit_s(crashes), asked, clock):
            return status
        if was_dead and mountpoints.find(point) is None:
            return 0  # somebody has unmounted it meanwhile


async def _asked_within(seconds: float, asked: asyncio.Event, clock: Clock) -> bool:
    waiting = [asyncio.ensure_future(asked.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    return asked.is_set()


async def _run(command: Sequence[str], ready: Callable[[], None], asked: asyncio.Event) -> tuple[int, bool]:
    """Its exit status, and whether it was mounted."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    def pass_on(number: int) -> None:
        asked.set()
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, pass_on, number)
    assert process.stdout is not None
    is_ready = (await process.stdout.readline()).startswith(b"ready ")
    if is_ready:
        ready()
    return await process.wait(), is_ready
