"""Calls to the members of an etcd cluster. A call goes to one member, and to the next one if there is no answer."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from threefs.env.clock import CLOCK, Clock
from threefs.errors import (
    Corrupt,
    InvalidArgument,
    MaybeCommitted,
    NoSpace,
    NotAuthorised,
    ThreefsError,
    Throttled,
    TooLarge,
    TooOld,
    Unavailable,
)
from threefs.wire import etcd_pb2 as pb

Rep = TypeVar("Rep", bound=Message)

#: The time that one member has for an answer. It is longer than an election, so few commits have an unknown outcome.
TRY_S = 2.5
MAX_READ_S = 5.0  # for a read, over all members
MAX_OPERATIONS = 16_384  # per transaction; etcd's own default of 128 is too few
_PAUSE_S = 0.05
_MAX_REPLY_BYTES = 128 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_REPLY_BYTES),
    ("grpc.max_send_message_length", -1),  # etcd refuses a request that is too large
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
]
#: A member without a leader refuses at once, so the call does not wait for its timeout.
_REQUIRE_LEADER = ("hasleader", "true")

_RANGE = "/etcdserverpb.KV/Range"
_TXN = "/etcdserverpb.KV/Txn"
_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

_Code = grpc.StatusCode
#: A token of the kind JWT names a revision, which is old after each change of a user or role.
_REFUSED_LOGIN = ("authentication failed", "revision of auth store is old", "revision in header is old")
_ELSEWHERE = (_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.CANCELLED, _Code.UNKNOWN, _Code.INTERNAL)


class _Member:
    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.token = ""
        self.logging_in = asyncio.Lock()
        self.channel = (
            grpc.aio.insecure_channel(address, options=_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        )
        self.range = self._method(_RANGE, pb.EtcdRangeReply)
        self.txn = self._method(_TXN, pb.EtcdTxnReply)
        self.authenticate = self._method(_AUTHENTICATE, pb.EtcdToken)

    def _method(self, path: str, reply: type[Message]) -> Any:
        return self.channel.unary_unary(
            path, request_serializer=lambda message: message.SerializeToString(), response_deserializer=reply.FromString
        )


class Members:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        user: str = "",
        password: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        assert addresses, "a cluster has at least one member"
        self._members = [_Member(address, credentials) for address in addresses]
        self._current = 0
        self._user, self._password = user, password
        self._clock = clock

    async def close(self) -> None:
        for member in self._members:
            await member.channel.close(None)

    async def read(self, request: pb.EtcdRange) -> pb.EtcdRangeReply:
        """Raises TooOld, Unavailable, NotAuthorised."""
        reply: pb.EtcdRangeReply = await self._look("range", request)
        return reply

    async def read_all(self, requests: Sequence[pb.EtcdRange]) -> tuple[int, list[pb.EtcdRangeReply]]:
        """The answers to all requests at one revision, and that revision."""
        request = pb.EtcdTxn(success=[pb.EtcdOperation(range=part) for part in requests])
        reply: pb.EtcdTxnReply = await self._look("txn", request)
        return reply.header.revision, [result.range for result in reply.responses]

    async def try_many(self, operations: int) -> None:
        """Check that etcd allows this many operations in a transaction. Raises TooLarge.

        The operations have no keys, so etcd refuses them, but it counts them first.
        """
        with contextlib.suppress(InvalidArgument):
            await self._look("txn", pb.EtcdTxn(compare=[pb.EtcdCompare()] * operations))

    async def _look(self, method: str, request: Message) -> Any:
        deadline = self._clock.monotonic() + MAX_READ_S
        while True:
            member = self._member()
            try:
                return await self._call(member, method, request)
            except grpc.aio.AioRpcError as error:
                failure = error_of(error, member.address)
                if not isinstance(failure, Unavailable | Throttled) or self._clock.monotonic() >= deadline:
                    raise failure from None
                self._leave(member)
            await self._clock.sleep(_PAUSE_S)

    async def change(self, request: pb.EtcdTxn) -> pb.EtcdTxnReply:
        """Send a transaction to one member, once. Raises MaybeCommitted if it may have been applied; any other error
        means that it was not."""
        for _ in range(2 * len(self._members)):
            member = self._member()
            try:
                reply: pb.EtcdTxnReply = await self._call(member, "txn", request)
                return reply
            except grpc.aio.AioRpcError as error:
                failure = error_of(error, member.address)
                self._leave(member)
                if isinstance(failure, Unavailable):
                    if _never_sent(error):
                        continue
                    raise MaybeCommitted(str(failure)) from None
                if isinstance(failure, TooLarge):
                    count = max(len(request.compare), len(request.success))
                    raise TooLarge(f"{failure} (it has {request.ByteSize()} bytes and {count} operations)") from None
                raise failure from None
        raise Throttled("no member of the etcd cluster can be reached")

    def _member(self) -> _Member:
        return self._members[self._current]

    def _leave(self, member: _Member) -> None:
        if self._member() is member:
            self._current = (self._current + 1) % len(self._members)

    # ---- authentication ----

    async def _call(self, member: _Member, method: str, request: Message) -> Any:
        token = await self._token(member)
        try:
            return await self._send(member, method, request, token)
        except grpc.aio.AioRpcError as error:
            if not token or not isinstance(error_of(error, member.address), NotAuthorised):
                raise
        # Tokens expire or are outdated, and a member that was started again knows none. It has not applied the request.
        if member.token == token:
            member.token = ""
        return await self._send(member, method, request, await self._token(member))

    async def _send(self, member: _Member, method: str, request: Message, token: str) -> Any:
        metadata = [_REQUIRE_LEADER, ("token", token)] if token else [_REQUIRE_LEADER]
        return await getattr(member, method)(request, timeout=TRY_S, metadata=metadata)

    async def _token(self, member: _Member) -> str:
        """The token for a member, of which each has its own: one that lags behind does not know those of others.

        Calls at the same time log in once.
        """
        if not self._user or member.token:
            return member.token
        async with member.logging_in:
            if not member.token:
                credentials = pb.EtcdAuthenticate(name=self._user, password=self._password)
                member.token = (await member.authenticate(credentials, timeout=TRY_S)).token
            return member.token


def _never_sent(error: grpc.aio.AioRpcError) -> bool:
    """Whether no process listens at the address, so that the request was not sent."""
    return error.code() is _Code.UNAVAILABLE and (error.details() or "").startswith("failed to connect")


def error_of(error: grpc.aio.AioRpcError, address: str) -> ThreefsError:
    """The error of threefs for an error of etcd. Unavailable: another member may answer."""
    code, text = error.code(), error.details() or error.code().name
    said = f"etcd at {address}: {text}"
    if "request is too large" in text or "larger than max" in text:
        return TooLarge(f"{said}; raise --max-request-bytes of etcd")
    if "too many operations" in text:
        return TooLarge(f"{said}; start etcd with --max-txn-ops={MAX_OPERATIONS}")
    if "space exceeded" in text:
        return NoSpace(f"{said}; compact and defragment it, or raise --quota-backend-bytes, then disarm its alarm")
    if "has been compacted" in text:
        return TooOld(said)
    if "too many requests" in text or "no leader" in text:
        return Throttled(said)
    if code in (_Code.UNAUTHENTICATED, _Code.PERMISSION_DENIED) or any(part in text for part in _REFUSED_LOGIN):
        return NotAuthorised(said)
    if "user name is empty" in text:
        return NotAuthorised(f"{said}; name a user in its URL, etcd://user:password@host:port")
    if code is _Code.DATA_LOSS or "corrupt" in text:
        return Corrupt(said)
    if code is _Code.INVALID_ARGUMENT:
        return InvalidArgument(said)
    if code in _ELSEWHERE or "future revision" in text:
        return Unavailable(said)
    return ThreefsError(said)
