"""What shares a message is answered as if it had gone alone."""

import asyncio
from typing import Any

import pytest
from threefs_client.metadata.call_batching import RETRY_ALONE, key_of, send_batch

from threefs.errors import AlreadyExists, NotFound, ProtocolError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb

USER = pb.Caller(uid=7, gid=8)


class Sender:
    def __init__(self, reply: Any) -> None:
        self.sent: list[tuple[Any, Any, float, pb.Caller | None]] = []
        self._reply = reply

    def mutation(self, count: int = 1) -> pb.Mutation:
        return pb.Mutation(client=b"c" * 16, request=count)

    async def send(self, method: Any, request: Any, *, timeout_s: float, caller: pb.Caller | None = None) -> Any:
        self.sent.append((method, request, timeout_s, caller))
        return self._reply


def together(reply: Any, *calls: tuple[Any, Any], caller: pb.Caller | None = None) -> tuple[list[Any], Sender]:
    sender = Sender(reply)
    (key,) = {key_of(method, request, caller, 5.0) for method, request in calls}
    assert key is not None
    return asyncio.run(send_batch(sender, key, list(calls))), sender


def test_one_goes_as_it_is() -> None:
    request = pb.StatRequest(place=pb.Place(path=b"/a"), follow=True)
    reply = pb.InodeReply(inode=pb.Inode(inode=3))
    outcomes, sender = together(reply, (methods.STAT, request), caller=USER)
    assert outcomes == [reply]
    assert sender.sent == [(methods.STAT, request, 5.0, USER)]


def test_looks() -> None:
    reply = pb.BatchStatReply()
    reply.results.add(inode=pb.Inode(inode=3))
    reply.results.add(code=NotFound.code, message="no b")
    stat = pb.StatRequest(place=pb.Place(base=2, path=b"x/y"))
    outcomes, sender = together(
        reply, (methods.STAT, stat), (methods.LOOKUP, pb.LookupRequest(parent=4, name=b"b")), caller=USER
    )
    assert outcomes[0].inode == pb.Inode(inode=3)
    assert isinstance(outcomes[1], NotFound) and str(outcomes[1]) == "no b"
    wanted = pb.BatchStatRequest(places=[stat.place, pb.Place(base=4, path=b"b")])
    assert sender.sent == [(methods.BATCH_STAT, wanted, 5.0, USER)]


def test_looks_below_one_inode_are_columns() -> None:
    reply = pb.BatchStatReply(inodes=[pb.Inode(inode=3), pb.Inode()])
    reply.errors.add(number=1, code=NotFound.code, message="no b")
    stat = pb.StatRequest(place=pb.Place(base=4, path=b"x/y"))
    calls = (methods.STAT, stat), (methods.LOOKUP, pb.LookupRequest(parent=4, name=b"b"))
    outcomes, sender = together(reply, *calls, caller=USER)
    assert outcomes[0].inode == pb.Inode(inode=3)
    assert isinstance(outcomes[1], NotFound) and str(outcomes[1]) == "no b"
    assert sender.sent == [(methods.BATCH_STAT, pb.BatchStatRequest(base=4, paths=[b"x/y", b"b"]), 5.0, USER)]
    for odd in (pb.BatchStatReply(inodes=reply.inodes[:1]), pb.BatchStatReply(inodes=reply.inodes)):
        odd.errors.add(number=2, code=NotFound.code)
        with pytest.raises(ProtocolError):
            together(odd, *calls)


def test_changes() -> None:
    made = pb.CreateReply(inode=pb.Inode(inode=3), created=True)
    closed = pb.InodeReply(inode=pb.Inode(inode=3, length=5))
    results = [pb.Changed(create=made), pb.Changed(), pb.Changed(code=AlreadyExists.code), pb.Changed(file=closed)]
    moved = pb.InodeReply(inode=pb.Inode(inode=9))
    results += [pb.Changed(retry_alone=True), pb.Changed(file=closed), pb.Changed(file=moved)]
    reply = pb.BatchReply(results=results)
    create = pb.CreateRequest(place=pb.Place(path=b"/a"), exclusive=True)
    remove = pb.RemoveRequest(place=pb.Place(path=b"/b"))
    close, sync = pb.CloseRequest(inode=3), pb.SyncRequest(inode=4)
    rename = pb.RenameRequest(source=pb.Place(path=b"/a"), destination=pb.Place(path=b"/z"), no_replace=True)
    cut = pb.CreateRequest(place=pb.Place(path=b"/c"), truncate=True)
    calls = [
        (methods.CREATE, create),
        (methods.REMOVE, remove),
        (methods.CREATE, create),
        (methods.CLOSE, close),
        (methods.CREATE, cut),
        (methods.SYNC, sync),
        (methods.RENAME, rename),
    ]
    outcomes, sender = together(reply, *calls)
    assert outcomes[0] == made
    assert outcomes[3] == closed
    assert outcomes[4] is RETRY_ALONE
    assert outcomes[5] == closed
    assert outcomes[6] == moved
    assert isinstance(outcomes[2], AlreadyExists)
    ((method, request, _, caller),) = sender.sent
    assert method is methods.BATCH and caller is None
    assert request.mutation == sender.mutation(7)
    assert list(request.changes) == [
        pb.Change(create=create),
        pb.Change(remove=remove),
        pb.Change(create=create),
        pb.Change(close=close),
        pb.Change(create=cut),
        pb.Change(sync=sync),
        pb.Change(rename=rename),
    ]


def test_what_cannot_share() -> None:
    assert key_of(methods.CLOSE, pb.CloseRequest(exact=True), None, 5.0) is None
    assert key_of(methods.SYNC, pb.SyncRequest(exact=True), None, 5.0) is None
    assert key_of(methods.RENAME, pb.RenameRequest(exchange=True), None, 5.0) is None
    assert key_of(methods.RENAME, pb.RenameRequest(whiteout=True), None, 5.0) is None
    assert key_of(methods.MKDIR, pb.MkdirRequest(), None, 5.0) is None
    stat = pb.StatRequest()
    keys = {
        key_of(methods.STAT, stat, None, 5.0),
        key_of(methods.STAT, pb.StatRequest(follow=True), None, 5.0),
        key_of(methods.STAT, stat, pb.Caller(), 5.0),
        key_of(methods.STAT, stat, USER, 5.0),
        key_of(methods.STAT, stat, None, 6.0),
        key_of(methods.REMOVE, pb.RemoveRequest(), None, 5.0),
    }
    assert len(keys) == 6


def test_a_wrong_number_of_answers_is_an_error() -> None:
    stat, remove = (methods.STAT, pb.StatRequest()), (methods.REMOVE, pb.RemoveRequest())
    with pytest.raises(ProtocolError, match="0 answers to 2"):
        together(pb.BatchStatReply(), stat, stat)
    with pytest.raises(ProtocolError, match="0 answers to 2"):
        together(pb.BatchReply(), remove, remove)
