"""Fetches the pages that `ahead` wishes for, while the kernel goes on asking."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY
from threefs_mount.cache.statahead import PrefetchRequest, StatAhead

#: So many entries of a directory behind a name, with attributes, and whether there are more.
Fetch = Callable[[int, bytes, int], Awaitable[tuple[Sequence[pb.Entry], bool]]]
#: Somebody has looked at the names of a directory up to the last one.
Walked = Callable[[int], Awaitable[None]]

_LOG = structlog.get_logger()


class Prefetcher:
    def __init__(self, cache_s: float, fetch: Fetch, clock: Clock) -> None:
        self.statahead = StatAhead(cache_s, self._start)
        self.walked_to_end: Walked | None = None
        self._fetch = fetch
        self._clock = clock
        self._background = BackgroundTasks()
        self._sweeping = False

    def _start(self, request: PrefetchRequest) -> None:
        self._background.run("fetching of attributes", self._fetch_page(request))

    async def _fetch_page(self, request: PrefetchRequest) -> None:
        try:
            entries, more = await self._fetch(request.directory, request.after, request.limit)
        except ThreefsError as error:
            _LOG.debug("nothing was fetched ahead", error=str(error))
            self.statahead.fetch_failed(request)
            return
        except Exception:
            _LOG.exception("nothing was fetched ahead")
            self.statahead.fetch_failed(request)
            return
        last = entries[-1].name if more and entries else b""
        self.statahead.insert_page(
            request, [(one.name, one.attributes) for one in entries], last, self._clock.monotonic()
        )
        if not self._sweeping:
            self._sweeping = True
            self._background.run("sweeping of attributes", self._sweep())
        if (
            not last
            and self.walked_to_end is not None
            and self.statahead.cached_count(request.directory) > SMALL_DIRECTORY
        ):
            with contextlib.suppress(ThreefsError):  # whoever lists it will be told
                await self.walked_to_end(request.directory)

    async def _sweep(self) -> None:
        """Old pages take memory, even if nobody asks any more."""
        while (due_s := self.statahead.expire(self._clock.monotonic())) is not None:
            await self._clock.sleep(max(0.001, due_s - self._clock.monotonic()))
        self._sweeping = False

    async def close(self) -> None:
        await self._background.stop()
