"""Programs that keep a file open, or mapped into memory, see changes of other clients after some seconds.

A mapping asks for nothing, and the kernel compares only times and lengths, which can be set back. So the mount polls
the change counters of all open files of which the kernel may have pages, many in a call. If another client has changed
a file, the kernel drops its pages of the file, and mappings read them anew. The kernel takes its time for that while
reads of the file are under way, so no file waits for another one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from threefs_client import paths
from threefs_client.context import ClientContext

from threefs.background import BackgroundTasks
from threefs.errors import ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.open_file_table import OpenFileTable

#: Time between two polls of a file.
PERIOD_S = 2.0
#: Files that a mount polls in a second. With more open files, the time between two polls grows.
MAX_PER_S = 1000
#: Files whose pages are dropped at once. The kernel waits there for the reads of the file that are under way, and those
#: may wait for a chain. It is half of the notifications that a session sends at once: locks need some, too.
MAX_DROPS = 16
_BATCH = 1024

_LOG = structlog.get_logger()


class PageRevalidator:
    """`drop_pages` makes the kernel drop its pages of an inode."""

    def __init__(
        self, context: ClientContext, files: OpenFileTable, drop_pages: Callable[[int], Awaitable[None]], cache_s: float
    ) -> None:
        self._context = context
        self._files = files
        self._drop_pages = drop_pages
        self._period_s = max(PERIOD_S, cache_s)
        self._background = BackgroundTasks()
        self._dropping: set[int] = set()  # inodes whose pages the kernel is dropping
        self._drop_slots = asyncio.Semaphore(MAX_DROPS)

    def start(self) -> None:
        self._background.start("revalidation of open files", self._run())

    async def close(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            await self._context.clock.sleep(max(self._period_s, len(self._files.with_pages()) / MAX_PER_S))
            files = self._files.with_pages()
            for first in range(0, len(files), _BATCH):
                try:
                    await self.revalidate(files[first : first + _BATCH])
                except ThreefsError as error:
                    _LOG.info("open files could not be revalidated now", error=str(error))
                except Exception:
                    _LOG.exception("open files could not be revalidated")

    async def revalidate(self, files: Sequence[OpenFile]) -> None:
        """Raises ThreefsError."""
        files = [file for file in files if file.inode.inode not in self._dropping]
        if not files:
            return
        request = pb.BatchStatRequest(places=[paths.inode_place(file.inode.inode) for file in files])
        reply = await self._context.meta.call(methods.BATCH_STAT, request, timeout_s=self._context.options.timeout_s)
        for file, result in zip(files, reply.results, strict=True):
            found = result.inode
            if not result.code and found.change != file.pages_change and file.open_handles:
                file.apply_inode(found)
                self._dropping.add(found.inode)
                self._background.attempt("dropping of pages", self._drop(file, found))

    async def _drop(self, file: OpenFile, found: pb.Inode) -> None:
        try:
            async with self._drop_slots:
                file.has_pages = False  # before: a read while they are dropped brings new ones
                await self._drop_pages(found.inode)
                file.set_pages_change(found.change)
        except OSError as error:  # the kernel takes no notifications any more
            _LOG.info("the pages of an open file could not be dropped now", inode=found.inode, error=str(error))
        finally:
            self._dropping.discard(found.inode)
