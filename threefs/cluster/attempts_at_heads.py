"""Ends attempts at heads of chains that the routing has put out, long before their deadline: a process that hangs never
answers, and its chains go on without it.

Such an attempt has an unknown outcome, as one that has met its deadline.
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType

from threefs.cluster.routing_watcher import RoutingSource
from threefs.errors import DeadlineExceeded
from threefs.ids import ChainId
from threefs.routing import Routing

#: A process that works has answered by then, and an answer is better than an unknown outcome.
_ANSWER_S = 0.5


class AttemptsAtHeads:
    """The attempts that are under way."""

    def __init__(self, cluster: RoutingSource) -> None:
        self.cluster = cluster
        self.attempts: set[Attempt] = set()
        cluster.on_change(self._end_outdated)

    def _end_outdated(self, routing: Routing) -> None:
        for attempt in self.attempts:
            attempt.end_if_outdated(routing)


class Attempt:
    """`async with Attempt(attempts, chains, routing)`: an attempt at the heads that the chains have in that routing.
    Raises DeadlineExceeded soon after it is the head of none of them any more: a silent process leaves all its chains,
    one that works leaves a chain now and then, with a move."""

    __slots__ = ("_all", "_chains", "_limit", "_routing")

    def __init__(self, attempts: AttemptsAtHeads, chains: Iterable[ChainId], routing: Routing) -> None:
        self._all = attempts
        self._chains = chains
        self._routing = routing
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._all.attempts.add(self)
        newest = self._all.cluster.routing
        if newest is not self._routing:
            self.end_if_outdated(newest)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.attempts.discard(self)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise DeadlineExceeded("the process did not answer, and its chain goes on without it") from None

    def end_if_outdated(self, newest: Routing) -> None:
        if self._limit.when() is None and all(self._has_other_head(newest, chain) for chain in self._chains):
            self._limit.reschedule(asyncio.get_running_loop().time() + _ANSWER_S)

    def _has_other_head(self, newest: Routing, chain: ChainId) -> bool:
        known = newest.chains.get(chain)
        return known is None or known.head != self._routing.chains[chain].head
