"""Programs that keep a file open, or mapped into their memory, see what others have changed: after some seconds.

A mapping asks for nothing, and the kernel compares nothing but times and lengths, which can be set back. So all open
files of which the kernel may have pages are looked at again and again, many in a call. Where somebody else has changed
one since, the kernel gives up its pages, and mappings read them anew.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog
from threefs_client import paths
from threefs_client.context import ClientContext

from threefs.background import BackgroundTasks
from threefs.errors import ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.table import OpenFileTable

#: Between two looks at a file, in seconds.
PERIOD_S = 2.0
#: No mount asks for more files than that in a second: with many of them the time between two looks grows.
MAX_PER_S = 1000
_BATCH = 1024

_LOG = structlog.get_logger()


class Revalidator:
    """`drop` has the kernel give up its pages of an inode."""

    def __init__(
        self, context: ClientContext, files: OpenFileTable, drop_pages: Callable[[int], Awaitable[None]], cache_s: float
    ) -> None:
        self._context = context
        self._files = files
        self._drop_pages = drop_pages
        self._period_s = max(PERIOD_S, cache_s)
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("looking at open files", self._run())

    async def close(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            await self._context.clock.sleep(max(self._period_s, len(self._files.with_pages()) / MAX_PER_S))
            files = self._files.with_pages()
            for first in range(0, len(files), _BATCH):
                try:
                    await self.revalidate(files[first : first + _BATCH])
                except (ThreefsError, OSError) as error:
                    _LOG.info("whether open files have changed is not known now", error=str(error))
                except Exception:
                    _LOG.exception("whether open files have changed is not known")

    async def revalidate(self, files: Sequence[OpenFile]) -> None:
        """Raises ThreefsError, and OSError when the kernel takes no notices any more."""
        request = pb.BatchStatRequest(places=[paths.inode_place(file.inode.inode) for file in files])
        reply = await self._context.meta.call(methods.BATCH_STAT, request, timeout_s=self._context.options.timeout_s)
        for file, result in zip(files, reply.results, strict=True):
            found = result.inode
            if not result.code and found.change != file.pages_change and file.open_handles:
                file.apply_inode(found)
                file.has_pages = False  # before: who reads while they go may have new ones
                await self._drop_pages(found.inode)
                file.set_pages_change(found.change)
