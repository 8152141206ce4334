"""Fetches the pages that `ahead` wishes for, while the kernel goes on asking."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.cached_listing import SMALL
from threefs_mount.cache.statahead import PrefetchRequest, StatAhead

#: So many entries of a directory behind a name, with attributes, and whether there are more.
Fetch = Callable[[int, bytes, int], Awaitable[tuple[Sequence[pb.Entry], bool]]]
#: Somebody has looked at the names of a directory up to the last one.
Walked = Callable[[int], Awaitable[None]]

_LOG = structlog.get_logger()


class Prefetcher:
    def __init__(self, cache_s: float, fetch: Fetch, clock: Clock) -> None:
        self.ahead = StatAhead(cache_s, self._start)
        self.walked: Walked | None = None
        self._fetch = fetch
        self._clock = clock
        self._background = BackgroundTasks()
        self._sweeping = False

    def _start(self, wish: PrefetchRequest) -> None:
        self._background.run("fetching of attributes", self._get(wish))

    async def _get(self, wish: PrefetchRequest) -> None:
        try:
            entries, more = await self._fetch(wish.directory, wish.after, wish.limit)
        except ThreefsError as error:
            _LOG.debug("nothing was fetched ahead", error=str(error))
            self.ahead.failed(wish)
            return
        except Exception:
            _LOG.exception("nothing was fetched ahead")
            self.ahead.failed(wish)
            return
        last = entries[-1].name if more and entries else b""
        self.ahead.arrived(wish, [(one.name, one.attributes) for one in entries], last, self._clock.monotonic())
        if not self._sweeping:
            self._sweeping = True
            self._background.run("sweeping of attributes", self._sweep())
        if not last and self.walked is not None and self.ahead.count(wish.directory) > SMALL:
            with contextlib.suppress(ThreefsError):  # whoever lists it will be told
                await self.walked(wish.directory)

    async def _sweep(self) -> None:
        """Old pages take memory, even if nobody asks any more."""
        while (due_s := self.ahead.expire(self._clock.monotonic())) is not None:
            await self._clock.sleep(max(0.001, due_s - self._clock.monotonic()))
        self._sweeping = False

    async def close(self) -> None:
        await self._background.stop()
