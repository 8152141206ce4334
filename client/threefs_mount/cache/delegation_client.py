"""The calls for delegations of directories: requests them, lists the names of their directories, and returns them."""

import contextlib
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import structlog
from threefs_client.context import ClientContext

from threefs.background import BackgroundTasks
from threefs.errors import ThreefsError
from threefs.paging import next_place
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.delegation import CREATES_BEFORE_REQUEST, IDLE_S, MAX_DELEGATIONS, DirectoryDelegations

_PAGE = 4096
#: Of the calls in the background, for which no program waits.
_TIMEOUT_S = 5.0
#: At the unmount. A client that needs a delegation that was not returned waits until it has expired.
_CLOSE_TIMEOUT_S = 0.5

_LOG = structlog.get_logger()


class Request(Protocol):
    @property
    def mutation(self) -> pb.Mutation: ...


class Reply(Protocol):
    @property
    def delegation(self) -> int: ...

    @property
    def recalled(self) -> int: ...


NameReply = TypeVar("NameReply", bound=Reply)
#: The number of a handle, and the reply of the meta service.
Created = tuple[int, pb.CreateReply]


class DelegationClient:
    """If it is not `enabled`, no delegation is requested."""

    def __init__(
        self, context: ClientContext, *, enabled: bool = True, creates_before_request: int = CREATES_BEFORE_REQUEST
    ) -> None:
        self.delegations = DirectoryDelegations(
            self._request_soon, self._return_soon, enabled=enabled, creates_before_request=creates_before_request
        )
        self._context = context
        self._client = context.meta.mutation().client
        self._background = BackgroundTasks()
        self._to_return: list[tuple[int, int]] = []
        self._returning = self._sweeping = False

    async def track_create(
        self, directory: int, name: bytes, request: Request, change: Awaitable[NameReply]
    ) -> NameReply:
        """Make a change that adds this name, and return its answer."""
        delegations, monotonic = self.delegations, self._context.clock.monotonic
        create = delegations.begin_create(directory, name, request.mutation.request, monotonic())
        try:
            reply = await change
        except BaseException:
            delegations.create_failed(create)
            raise
        delegations.create_done(create, reply.delegation, reply.recalled, monotonic())
        return reply

    async def track_file_create(self, request: pb.CreateRequest, creation: Awaitable[Created]) -> Created:
        """The same for the creation of a file, which may exist already or get no name."""
        if request.unnamed:
            return await creation
        delegations, monotonic, place = self.delegations, self._context.clock.monotonic, request.place
        create = delegations.begin_create(place.base, place.path, request.mutation.request, monotonic())
        try:
            number, reply = await creation
        except BaseException:
            delegations.create_failed(create)
            raise
        if reply.created:
            delegations.create_done(create, reply.delegation, reply.recalled, monotonic())
        else:
            delegations.create_found_existing(create)
        return number, reply

    def _request_soon(self, directory: int) -> None:
        self._background.run("request of a delegation", self._request(directory))

    async def _request(self, directory: int) -> None:
        clock, delegations = self._context.clock, self.delegations
        mutation = self._context.meta.mutation()
        asked_s = clock.monotonic()
        delegation, oldest = delegations.begin_request(directory, mutation.request, asked_s)
        if not self._sweeping:
            self._sweeping = True
            self._background.run("expiry of delegations", self._sweep())
        request = pb.DelegateRequest(mutation=mutation, directory=directory, oldest=oldest)
        try:
            reply = await self._context.meta.call(methods.DELEGATE, request, timeout_s=_TIMEOUT_S)
            if not delegations.request_answered(delegation, reply.delegation, asked_s, clock.monotonic()):
                return
            after, more = b"", True
            while more:
                wanted = pb.ListNamesRequest(directory=directory, after=after, limit=_PAGE)
                page = await self._context.meta.call(methods.LIST_NAMES, wanted, timeout_s=_TIMEOUT_S)
                names = page.names.split(b"\0")[:-1]
                more = page.more
                if not delegations.insert_names(delegation, names, clock.monotonic(), more=more):
                    return
                if more:
                    after = next_place("a directory", after, names[-1] if names else None)
        except ThreefsError as error:
            _LOG.debug("a delegation could not be requested", error=str(error))
            delegations.request_failed(delegation, clock.monotonic())
        except Exception:
            _LOG.exception("a delegation could not be requested")
            delegations.request_failed(delegation, clock.monotonic())

    async def _sweep(self) -> None:
        """Return idle delegations together, in few calls."""
        while self.delegations.expire(self._context.clock.monotonic()):
            await self._context.clock.sleep(IDLE_S / 2)
        self._sweeping = False

    def _return_soon(self, directory: int, number: int) -> None:
        self._to_return.append((directory, number))
        if not self._returning:
            self._returning = True
            self._background.run("return of delegations", self._return_all())

    async def _return_all(self) -> None:
        """At once, because another client may wait for them."""
        while self._to_return:
            some = self._to_return[:MAX_DELEGATIONS]
            await self._return_some(some, _TIMEOUT_S)
            del self._to_return[: len(some)]
        self._returning = False

    async def _return_some(self, some: list[tuple[int, int]], timeout_s: float) -> None:
        request = pb.ReturnDelegationRequest(
            client=self._client,
            directories=[directory for directory, _ in some],
            numbers=[number for _, number in some],
        )
        with contextlib.suppress(ThreefsError):  # they expire soon
            await self._context.meta.call(methods.RETURN_DELEGATION, request, timeout_s=timeout_s)

    async def close(self) -> None:
        """Return all delegations, and stop."""
        self._returning = True
        self.delegations.return_all()
        await self._background.stop()
        if self._to_return:
            await self._return_some(self._to_return[:MAX_DELEGATIONS], _CLOSE_TIMEOUT_S)
