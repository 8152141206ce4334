"""The parent of the process behind a mount. It starts the process again if it was killed or has crashed.

In between, the dead mount stays: programs get ENOTCONN, and do not write into the directory below it. When somebody
unmounts it, or has unmounted it before its process ended, nothing is mounted again; nor if another mount is there then.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

import structlog

from threefs.backoff import Backoff
from threefs.env.clock import CLOCK, Clock
from threefs_mount import mountpoints

#: The option of a process that is started again where there is a dead mount: it mounts only in the place of that.
REPLACE = "--replace"
_BACKOFF = Backoff(0.2, 30.0)
#: After a process has served for this long, the pauses between restarts are short again.
_STABLE_S = 60.0

_LOG = structlog.get_logger()


async def supervise(command: Sequence[str], point: str, ready: Callable[[], None], *, clock: Clock = CLOCK) -> int:
    """Run `command`, which serves `point`, until the unmount, or until SIGTERM or SIGINT, which are passed on to it.

    `ready` is called after the first mount. If the first run does not mount, the command is not run again. Returns the
    last exit status of the command.
    """
    crashes, was_ready, was_dead = 0, False, False
    stop = asyncio.Event()  # a signal has come, perhaps while no process runs
    while True:
        began = clock.monotonic()
        words = [*command[:-1], REPLACE, command[-1]] if was_dead else command
        try:
            status, said = await _run(words, (lambda: None) if was_ready else ready, stop)
        except OSError as error:
            if not was_ready:
                raise
            # What has killed the mount may have left no process, memory or descriptor for the next one just now.
            _LOG.error("the process behind the mount cannot be started now", reason=str(error), mountpoint=point)
            status, said = 1, set()
        was_ready = was_ready or b"ready" in said
        if status == 0 or not was_ready or stop.is_set():
            return status
        was_dead = b"ready" in said or (was_dead and not said)  # unless somebody has unmounted it
        if was_dead and _is_gone(point):
            return status
        _LOG.error("the process behind the mount has ended: it is started again", status=status, mountpoint=point)
        crashes = 0 if clock.monotonic() - began > _STABLE_S else crashes + 1
        if await _stopped_within(_BACKOFF.limit_s(crashes), stop, clock):
            return status
        if was_dead and _is_gone(point):
            return status


def _is_gone(point: str) -> bool:
    """Whether the mount, whose process has ended, was unmounted. A mount that answers is another one: numbers of mounts
    and devices do not tell, as the kernel gives them to the next one. What cannot be asked for, as without a free
    descriptor, says nothing: the mount counts as there."""
    try:
        return mountpoints.find(point) is None or mountpoints.answers(point)
    except OSError:
        return False


async def _stopped_within(seconds: float, stop: asyncio.Event, clock: Clock) -> bool:
    waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return stop.is_set()


async def _run(command: Sequence[str], ready: Callable[[], None], stop: asyncio.Event) -> tuple[int, set[bytes]]:
    """Run the command to its end. Returns its exit status, and what it has said: "replaced" when it had detached a dead
    mount, "ready" when it had mounted."""
    process: asyncio.subprocess.Process | None = None
    early: list[int] = []  # signals that came while the process was being made

    def pass_on(number: int) -> None:
        stop.set()
        if process is None:
            early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, pass_on, number)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    for came in early:
        pass_on(came)
    assert process.stdout is not None
    said: set[bytes] = set()
    while b"ready" not in said and (line := await process.stdout.readline()):
        said |= {b"ready", b"replaced"} & {line.partition(b" ")[0]}
    if b"ready" in said:
        ready()
    return await process.wait(), said
