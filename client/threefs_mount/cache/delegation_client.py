"""Asks for the claims that `claims` wants, for the names of their directories, and gives back what it needs no more."""

import contextlib
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import structlog
from threefs_client.context import ClientContext

from threefs.background import BackgroundTasks
from threefs.errors import ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.delegation import FIRST_NAMES, IDLE_S, MOST_CLAIMS, DirectoryDelegations

_PAGE = 4096
#: Nobody waits for these calls.
_PATIENCE_S = 5.0
#: At the unmount. Who finds a claim that was not given back waits a moment.
_GOODBYE_S = 0.5

_LOG = structlog.get_logger()


class Request(Protocol):
    @property
    def mutation(self) -> pb.Mutation: ...


class Reply(Protocol):
    @property
    def claim(self) -> int: ...

    @property
    def recalled(self) -> int: ...


Named = TypeVar("Named", bound=Reply)
#: The number of a handle, and what the meta service has said.
Created = tuple[int, pb.CreateReply]


class DelegationClient:
    """`cache_s` 0: nothing is claimed."""

    def __init__(self, link: ClientContext, cache_s: float, *, first_names: int = FIRST_NAMES) -> None:
        self.claims = DirectoryDelegations(self._start, self._give_back, enabled=cache_s > 0, first_names=first_names)
        self._link = link
        self._client = link.meta.mutation().client
        self._background = BackgroundTasks()
        self._given_back: list[tuple[int, int]] = []
        self._returning = self._sweeping = False

    async def adding(self, directory: int, name: bytes, request: Request, change: Awaitable[Named]) -> Named:
        """The answer to a change that gives something this name."""
        claims, monotonic = self.claims, self._link.clock.monotonic
        addition = claims.adding(directory, name, request.mutation.request, monotonic())
        try:
            reply = await change
        except BaseException:
            claims.failed(addition)
            raise
        claims.added(addition, reply.claim, reply.recalled, monotonic())
        return reply

    async def creating(self, request: pb.CreateRequest, creation: Awaitable[Created]) -> Created:
        """The same for the creation of a file, which may be there already or get no name."""
        if request.unnamed:
            return await creation
        claims, monotonic, place = self.claims, self._link.clock.monotonic, request.place
        addition = claims.adding(place.base, place.path, request.mutation.request, monotonic())
        try:
            number, reply = await creation
        except BaseException:
            claims.failed(addition)
            raise
        if reply.created:
            claims.added(addition, reply.claim, reply.recalled, monotonic())
        else:
            claims.found(addition)
        return number, reply

    def _start(self, directory: int) -> None:
        self._background.run("claiming of a directory", self._claim(directory))

    async def _claim(self, directory: int) -> None:
        clock, claims = self._link.clock, self.claims
        mutation = self._link.meta.mutation()
        asked_s = clock.monotonic()
        claim, oldest = claims.ask(directory, mutation.request, asked_s)
        if not self._sweeping:
            self._sweeping = True
            self._background.run("sweeping of claims", self._sweep())
        request = pb.DelegateRequest(mutation=mutation, directory=directory, oldest=oldest)
        try:
            reply = await self._link.meta.call(methods.DELEGATE, request, timeout_s=_PATIENCE_S)
            if not claims.answered(claim, reply.claim, asked_s, clock.monotonic()):
                return
            after, more = b"", True
            while more:
                wanted = pb.ListNamesRequest(directory=directory, after=after, limit=_PAGE)
                page = await self._link.meta.call(methods.LIST_NAMES, wanted, timeout_s=_PATIENCE_S)
                names = page.names.split(b"\0")[:-1]
                more = page.more and bool(names)
                if not claims.listed(claim, names, clock.monotonic(), more=more):
                    return
                after = names[-1] if names else b""
        except ThreefsError as error:
            _LOG.debug("a directory was not claimed", error=str(error))
            claims.unknown(claim, clock.monotonic())
        except Exception:
            _LOG.exception("a directory was not claimed")
            claims.unknown(claim, clock.monotonic())

    async def _sweep(self) -> None:
        """Together, so that what is used no more costs little."""
        while self.claims.expire(self._link.clock.monotonic()):
            await self._link.clock.sleep(IDLE_S / 2)
        self._sweeping = False

    def _give_back(self, directory: int, number: int) -> None:
        self._given_back.append((directory, number))
        if not self._returning:
            self._returning = True
            self._background.run("returning of claims", self._return())

    async def _return(self) -> None:
        """At once: somebody may wait for it."""
        while self._given_back:
            some = self._given_back[:MOST_CLAIMS]
            await self._unclaim(some, _PATIENCE_S)
            del self._given_back[: len(some)]
        self._returning = False

    async def _unclaim(self, some: list[tuple[int, int]], timeout_s: float) -> None:
        request = pb.ReturnDelegationRequest(
            client=self._client, directories=[one for one, _ in some], numbers=[number for _, number in some]
        )
        with contextlib.suppress(ThreefsError):  # whoever needs it waits a moment
            await self._link.meta.call(methods.RETURN_DELEGATION, request, timeout_s=timeout_s)

    async def close(self) -> None:
        """Nothing is asked any more."""
        self._returning = True
        self.claims.clear()
        await self._background.stop()
        if self._given_back:
            await self._unclaim(self._given_back[:MOST_CLAIMS], _GOODBYE_S)
