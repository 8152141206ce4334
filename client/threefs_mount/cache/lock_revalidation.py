"""A program that gets a lock reads the bytes that were written under the lock before.

Each holder syncs those bytes before it releases the lock. So when a lock is granted, and the file has changed since the
kernel last dropped its pages of it, the kernel drops them again before the program gets the lock. An invalidation of
the attributes alone is not enough: the kernel ignores an answer that has crossed with another one, and keeps its pages.
For the same reason nothing is invalidated if nothing has changed, and an answer to a question that was sent before the
lock was granted is not used: the question is sent again.
"""

import contextlib
from collections.abc import Awaitable, Callable

from threefs.background import BackgroundTasks
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.open_file_table import OpenFileTable


class LockRevalidation:
    """`stat` fetches the attributes of an inode; `drop_pages` makes the kernel drop its pages of one."""

    def __init__(
        self,
        files: OpenFileTable,
        stat: Callable[[int], Awaitable[pb.Inode]],
        drop_pages: Callable[[int], Awaitable[None]],
    ) -> None:
        self.generation = 0  # of the last revalidation
        self._files = files
        self._stat = stat
        self._drop_pages = drop_pages
        self._background = BackgroundTasks()

    async def on_locked(self, inode: int) -> None:
        """A lock on the file was granted. Raises what `stat` and `drop_pages` raise."""
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
        """Written bytes were lost, and a program that reads the file again must see that. This does not wait for the
        kernel, because the kernel may wait for this mount."""
        self._background.run("dropping of pages", self._drop_soon(inode))

    async def _drop_soon(self, inode: int) -> None:
        with contextlib.suppress(OSError):
            await self._drop_pages(inode)

    def revalidated_since(self, inode: int, generation: int) -> bool:
        """Whether the file was revalidated after `generation`, so that an answer of that generation is too old."""
        file = self._files.get(inode)
        return file is not None and file.revalidation > generation
