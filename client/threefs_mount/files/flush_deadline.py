"""One deadline for the closes of a program that ends, while no service answers.

When a program ends, the kernel closes its files one after the other, and asks for a flush at each close. If no service
answers, each flush takes its whole timeout, and the killed program hangs for all of them. But the mount tries to sync
all dirty files at the same time, so a file that was dirty when a sync began that has failed at its deadline had that
long, too. Its sync goes on in the background. A program that closes a file itself waits for the outcome, which it gets.
"""

import math
from collections.abc import Awaitable, Callable

from threefs_client.context import ClientContext

from threefs.errors import DeadlineExceeded, OutcomeUnknown, Unavailable
from threefs_mount.files.open_file import OpenFile

#: Errors of calls that were repeated until their deadline.
_AT_DEADLINE = (DeadlineExceeded, OutcomeUnknown, Unavailable)


class FlushDeadline:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._failed_began_s = -math.inf  # of the newest sync that has failed at its deadline, if none succeeded since

    async def sync(self, file: OpenFile, job: Callable[[], Awaitable[None]]) -> None:
        """Run a sync of the file, and note whether services answer."""
        began_s, was_dirty = self._context.clock.monotonic(), file.dirty
        try:
            await job()
        except _AT_DEADLINE:
            self._failed_began_s = max(self._failed_began_s, began_s)
            raise
        if was_dirty:
            self._failed_began_s = -math.inf

    def check(self, file: OpenFile, is_ending: Callable[[], bool]) -> None:
        """Raises DeadlineExceeded if `is_ending` says that the program ends, and the file has had its time."""
        if file.dirty_longer_than(self._context.clock.monotonic() - self._failed_began_s) and is_ending():
            raise DeadlineExceeded(
                f"inode {file.inode.inode} could not be synced while other files were tried for "
                f"{self._context.options.timeout_s:g} s; it is tried further"
            )
