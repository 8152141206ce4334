"""Whoever locks a file reads what was written under the lock before.

Others have settled that before they gave up their lock. So when a lock is had, and the file is not as it was when the
kernel last gave up its pages of it, the kernel does so again before the program hears of the lock. To have it ask for
attributes is not enough: it ignores an answer that has crossed with another one, and goes on with its pages.
For the same reason it is told nothing where nothing has changed, and what was asked of the file before is asked again.
"""

import contextlib
from collections.abc import Awaitable, Callable

from threefs.background import BackgroundTasks
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.table import OpenFileTable


class LockRevalidation:
    """`stat` asks what the cluster knows of an inode, `drop` has the kernel give up its pages of one."""

    def __init__(
        self,
        files: OpenFileTable,
        stat: Callable[[int], Awaitable[pb.Inode]],
        drop_pages: Callable[[int], Awaitable[None]],
    ) -> None:
        self.generation = 0  # of the last one
        self._files = files
        self._stat = stat
        self._drop_pages = drop_pages
        self._background = BackgroundTasks()

    async def on_locked(self, inode: int) -> None:
        """Somebody has got a lock on it. Raises what `stat` and `drop` raise."""
        found = await self._stat(inode)
        file = self._files.get(inode)
        if file is None:
            return
        file.apply_inode(found)
        if file.revalidated_change == found.change:
            return
        self.generation += 1
        file.revalidation = self.generation
        await self._drop_pages(inode)
        file.revalidated_change = found.change

    def on_lost(self, inode: int) -> None:
        """What was written is not stored: whoever reads it again sees that. Not waited for, as the kernel may be."""
        self._background.run("dropping of pages", self._drop_soon(inode))

    async def _drop_soon(self, inode: int) -> None:
        with contextlib.suppress(OSError):
            await self._drop_pages(inode)

    def revalidated_since(self, inode: int, number: int) -> bool:
        """Whether an answer about it is too old that was asked for when `number` was that of the last renewal."""
        file = self._files.get(inode)
        return file is not None and file.revalidation > number
