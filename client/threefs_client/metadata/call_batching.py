"""Which calls of the meta service share a message, and what the message is: STAT and LOOKUP become a BATCH_STAT,
changes become a BATCH."""

from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol

from threefs.errors import ProtocolError, ThreefsError, error_of
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb


class Key(NamedTuple):
    """Calls of the same key can share a message."""

    changes: bool
    follow: bool
    caller: bytes
    timeout_s: float


class StatResult(NamedTuple):
    """A result of a BATCH_STAT. An InodeReply would need a copy of the inode."""

    inode: pb.Inode


Single = tuple[Method[Any, Any], Any]
Outcome = Any | ThreefsError
#: The outcome of a call that has to be sent by itself.
RETRY_ALONE = object()

#: Method -> fields of the request in `Change`, and of the reply in `Changed`.
_CHANGES = {
    methods.CREATE: ("create", "create"),
    methods.REMOVE: ("remove", "remove"),
    methods.RENAME: ("rename", "file"),
    methods.CLOSE: ("close", "file"),
    methods.SYNC: ("sync", "file"),
    methods.PUBLISH: ("publish", "file"),
}
#: Methods whose calls may share a message.
SHARED = frozenset((methods.STAT, methods.LOOKUP, *_CHANGES))


class Sender(Protocol):
    def mutation(self, count: int = 1) -> pb.Mutation: ...

    def send(
        self, method: Method[Req, Rep], request: Req, *, timeout_s: float, caller: pb.Caller | None = None
    ) -> Awaitable[Rep]: ...


def key_of(method: Method[Any, Any], request: Any, caller: pb.Caller | None, timeout_s: float) -> Key | None:
    """The key of a call. None: the call needs a message of its own."""
    if method is methods.STAT:
        changes, follow = False, request.follow
    elif method is methods.LOOKUP:
        changes, follow = False, False
    elif method in _CHANGES and not _goes_alone(method, request):
        changes, follow = True, False
    else:
        return None
    return Key(changes, follow, caller_key(caller), timeout_s)


def caller_key(caller: pb.Caller | None) -> bytes:
    return b"" if caller is None else b"c" + caller.SerializeToString()


def _goes_alone(method: Method[Any, Any], request: Any) -> bool:
    """Whether the call moves directories, has to wait for chunks, or may be repeated by its caller: in a BATCH it would
    have another identity."""
    if method is methods.RENAME:
        return bool(request.exchange or request.whiteout)
    if method is methods.CREATE:
        return bool(request.unnamed)  # nothing else finds a file without a name, if its number was not received
    return (method is methods.CLOSE or method is methods.SYNC) and request.exact


async def send_batch(sender: Sender, key: Key, calls: list[Single]) -> list[Outcome]:
    """Send calls of one key in one message. Returns the reply, the error or RETRY_ALONE of each."""
    caller = pb.Caller.FromString(key.caller[1:]) if key.caller else None
    if len(calls) == 1:
        method, request = calls[0]
        return [await sender.send(method, request, timeout_s=key.timeout_s, caller=caller)]
    if key.changes:
        batch = pb.BatchRequest(mutation=sender.mutation(len(calls)))
        for method, request in calls:
            getattr(batch.changes.add(), _CHANGES[method][0]).CopyFrom(request)
        changed = await sender.send(methods.BATCH, batch, timeout_s=key.timeout_s, caller=caller)
        _check(len(changed.results), len(calls))
        return [_outcome(method, result) for (method, _), result in zip(calls, changed.results, strict=True)]
    stats = _stat_batch(key, calls)
    found = await sender.send(methods.BATCH_STAT, stats, timeout_s=key.timeout_s, caller=caller)
    if stats.places:
        _check(len(found.results), len(calls))
        return [error_of(result.code, result.message) if result.code else result for result in found.results]
    _check(len(found.inodes), len(calls))
    outcomes: list[Outcome] = [*map(StatResult, found.inodes)]
    for error in found.errors:
        if error.number >= len(calls):
            raise ProtocolError(f"the meta service gave an error of call {error.number} of {len(calls)}")
        outcomes[error.number] = error_of(error.code, error.message)
    return outcomes


def _stat_batch(key: Key, calls: list[Single]) -> pb.BatchStatRequest:
    """The request. It has columns if all places have one base inode, which is cheaper for both sides."""
    bases, names = [], []
    for method, request in calls:
        if method is methods.STAT:
            place = request.place
            bases.append(place.base)
            names.append(place.path)
        else:
            bases.append(request.parent)
            names.append(request.name)
    if bases.count(bases[0]) == len(bases):
        return pb.BatchStatRequest(follow=key.follow, base=bases[0], paths=names)
    places = [pb.Place(base=base, path=name) for base, name in zip(bases, names, strict=True)]
    return pb.BatchStatRequest(follow=key.follow, places=places)


def _check(results: int, calls: int) -> None:
    if results != calls:
        raise ProtocolError(f"the meta service gave {results} answers to {calls} calls")


def _outcome(method: Method[Any, Any], changed: pb.Changed) -> Outcome:
    if changed.code:
        return error_of(changed.code, changed.message)
    if changed.retry_alone:
        return RETRY_ALONE
    return getattr(changed, _CHANGES[method][1])
