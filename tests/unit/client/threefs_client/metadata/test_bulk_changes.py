"""Many changes are cut into calls, and each has its own outcome."""

import asyncio

import pytest
from threefs_client.metadata import bulk_changes
from threefs_client.metadata.call_retry import MetaClient

from tests.harness.memory_cluster import MemoryFiles
from threefs.errors import AlreadyExists, OutcomeUnknown, ProtocolError
from threefs.wire import meta_pb2 as pb


def meta_client() -> MetaClient:
    return MemoryFiles().context.meta


async def never(change: pb.Change) -> pb.Changed:
    raise AssertionError


def created(path: bytes) -> pb.Change:
    return pb.Change(create=pb.CreateRequest(place=pb.Place(path=path)))


async def test_identities_follow_each_other_and_no_call_is_too_large() -> None:
    meta = meta_client()
    requests: list[pb.BatchRequest] = []

    async def send(request: pb.BatchRequest) -> pb.BatchReply:
        requests.append(request)
        await asyncio.sleep(0)
        numbers = range(len(request.changes))
        return pb.BatchReply(results=[pb.Changed(request=request.mutation.request + n) for n in numbers])

    wanted = [created(b"%d" % number) for number in range(600)]
    outcomes = await bulk_changes.change_many(meta, send, never, wanted)
    assert [len(request.changes) for request in requests] == [256, 256, 88]
    assert [change for request in requests for change in request.changes] == wanted
    first = requests[0].mutation.request
    assert [one.request - first for one in outcomes if isinstance(one, pb.Changed)] == list(range(600))
    assert meta.mutation().request == first + 600

    requests.clear()
    await bulk_changes.change_many(meta, send, never, [created(b"x" * 300_000)] * 7)
    assert [len(request.changes) for request in requests] == [3, 3, 1]
    requests.clear()
    await bulk_changes.change_many(meta, send, never, [created(b"x" * 3_000_000)] * 2)
    assert [len(request.changes) for request in requests] == [1, 1]
    assert await bulk_changes.change_many(meta, send, never, []) == []


async def test_an_error_is_of_its_change_and_that_of_a_call_is_of_all_in_it() -> None:
    async def send(request: pb.BatchRequest) -> pb.BatchReply:
        if len(request.changes) < bulk_changes.MAX_CHANGES:
            raise OutcomeUnknown("who knows")
        failed = pb.Changed(code=AlreadyExists.code, message="/0 is there")
        return pb.BatchReply(results=[failed] + [pb.Changed()] * (len(request.changes) - 1))

    outcomes = await bulk_changes.change_many(
        meta_client(), send, never, [created(b"n")] * (bulk_changes.MAX_CHANGES + 2)
    )
    assert isinstance(outcomes[0], AlreadyExists)
    assert str(outcomes[0]) == "/0 is there"
    assert outcomes[1:-2] == [pb.Changed()] * (bulk_changes.MAX_CHANGES - 1)
    assert all(isinstance(one, OutcomeUnknown) for one in outcomes[-2:])


async def test_what_was_left_out_is_sent_by_itself() -> None:
    async def send(request: pb.BatchRequest) -> pb.BatchReply:
        return pb.BatchReply(results=[pb.Changed(retry_alone=True), pb.Changed(), pb.Changed(retry_alone=True)])

    async def send_alone(change: pb.Change) -> pb.Changed:
        if change == created(b"2"):
            raise AlreadyExists("it is there by now")
        return pb.Changed(request=7)

    wanted = [created(b"%d" % number) for number in range(3)]
    first, second, third = await bulk_changes.change_many(meta_client(), send, send_alone, wanted)
    assert (first, second) == (pb.Changed(request=7), pb.Changed())
    assert isinstance(third, AlreadyExists)


def test_a_wrong_number_of_answers_is_an_error() -> None:
    async def send(request: pb.BatchRequest) -> pb.BatchReply:
        return pb.BatchReply()

    with pytest.raises(ProtocolError, match="0 answers to 1"):
        asyncio.run(bulk_changes.change_many(meta_client(), send, never, [created(b"a")]))


@pytest.mark.parametrize("how", ["one fails", "cancelled"])
async def test_no_call_goes_on_behind_the_end_of_all(how: str) -> None:
    """What the caller does next, or another one, must not come before what it has given up."""
    under_way = 0

    async def send(request: pb.BatchRequest) -> pb.BatchReply:
        nonlocal under_way
        under_way += 1
        try:
            await asyncio.sleep(0.001)
            if how == "one fails" and request.mutation.request == 1:
                return pb.BatchReply()  # without answers
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            await asyncio.sleep(request.mutation.request / 100_000)  # it takes a while to give up
            raise
        finally:
            under_way -= 1
        return pb.BatchReply(results=[pb.Changed()] * len(request.changes))

    work = asyncio.create_task(
        bulk_changes.change_many(meta_client(), send, never, [created(b"%d" % number) for number in range(600)])
    )
    await asyncio.sleep(0)
    if how == "cancelled":
        await asyncio.sleep(0.0005)
        work.cancel()
    with pytest.raises(ProtocolError if how == "one fails" else asyncio.CancelledError):
        await work
    assert under_way == 0
