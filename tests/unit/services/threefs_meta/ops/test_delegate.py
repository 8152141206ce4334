"""Granting and returning delegations."""

import pytest
from threefs_meta.lease.delegation import COOLDOWN_TICKS
from threefs_meta.ops.delegate import MAX_DELEGATIONS, delegate, return_delegation
from threefs_meta.ops.list_names import list_names
from threefs_meta.ops.remove import remove
from threefs_meta.ops.stat import lookup

from tests.harness.meta_harness import CLIENT, MetaBench, at
from threefs.errors import InvalidArgument, NotADirectory, NotFound
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb

OTHER = b"o" * 16


async def delegated(fs: MetaBench, directory: int, client: bytes = CLIENT) -> int:
    """The number of the delegation; 0 if it was not granted."""
    mutation = fs.mutation()
    mutation.client = client
    reply = await delegate(fs.context, pb.DelegateRequest(mutation=mutation, directory=directory))
    assert reply.delegation in (0, mutation.request)
    return reply.delegation


async def stored(fs: MetaBench, directory: int) -> pb.Delegation:
    found = await fs.context.namespace(fs.engine.begin()).require_inode(directory)
    return found.delegation


async def test_one_client_at_a_time(bench: MetaBench) -> None:
    number = (await bench.mkdir("/d")).inode
    first = await delegated(bench, number)
    assert first and not await delegated(bench, number, OTHER) and (await stored(bench, number)).number == first
    second = await delegated(bench, number)
    assert second > first and (await stored(bench, number)).number == second
    assert await delegated(bench, ROOT, OTHER)


@pytest.mark.parametrize("store", ["good", pytest.param("troubled", marks=pytest.mark.trouble(conflict_rate=0.3))])
async def test_a_repeated_answer_grants_nothing(bench: MetaBench, store: str) -> None:
    number = (await bench.mkdir("/d")).inode
    request = pb.DelegateRequest(mutation=bench.mutation(), directory=number)
    assert (await delegate(bench.context, request)).delegation == request.mutation.request
    assert not (await delegate(bench.context, request)).delegation


async def test_where_one_was_recalled_there_is_none_for_a_while(bench: MetaBench) -> None:
    number = (await bench.mkdir("/d")).inode
    assert await delegated(bench, number, OTHER)
    await bench.create("/d/f")
    assert not await delegated(bench, number) and not await delegated(bench, number, OTHER)
    await bench.pass_ticks(COOLDOWN_TICKS + 1)
    assert await delegated(bench, number)


async def test_which_inodes_can_be_delegated(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.set_trash("/d", 60)
    file = (await bench.create("/d/f")).inode
    await bench.remove("/d/f")
    assert not await delegated(bench, (await bench.stat("/.trash/0")).inode)
    with pytest.raises(NotADirectory):
        await delegated(bench, file.inode)
    with pytest.raises(NotFound):
        await delegated(bench, 999)


async def test_replies_do_not_show_delegations(bench: MetaBench) -> None:
    number = (await bench.mkdir("/a/d", parents=True)).inode
    before = await bench.stat("/a/d")
    token = (await list_names(bench.context, pb.ListNamesRequest(directory=number))).token
    assert await delegated(bench, number)
    assert await bench.stat("/a/d") == before
    assert (
        await lookup(bench.context, pb.LookupRequest(parent=(await bench.stat("/a")).inode, name=b"d"))
    ).inode == before
    page = await list_names(bench.context, pb.ListNamesRequest(directory=before.parent, attributes_up_to=9))
    assert [pb.Inode.FromString(one) for one in page.attributes] == [before]
    assert (await list_names(bench.context, pb.ListNamesRequest(directory=number))).token == token
    gone = await remove(bench.context, pb.RemoveRequest(mutation=bench.mutation(), place=at("/a/d")))
    assert gone.directory and not gone.directory.HasField("delegation")


async def test_it_stays_with_a_directory_that_is_moved_or_changed(bench: MetaBench) -> None:
    number = (await bench.mkdir("/d")).inode
    first = await delegated(bench, number)
    assert not (await bench.rename("/d", "/e")).HasField("delegation")
    assert not (await bench.set("/e", mode=0o700)).HasField("delegation")
    assert (await stored(bench, number)).number == first
    await return_delegation(
        bench.context, pb.ReturnDelegationRequest(client=CLIENT, directories=[number], numbers=[first])
    )
    assert not (await stored(bench, number)).client


async def test_each_gives_up_its_own(bench: MetaBench) -> None:
    a, b, c = [(await bench.mkdir(f"/{name}")).inode for name in "abc"]
    numbers = [await delegated(bench, a), await delegated(bench, b, OTHER), await delegated(bench, c) + 1]
    request = pb.ReturnDelegationRequest(client=CLIENT, directories=[a, b, c, 999], numbers=[*numbers, 1])
    await return_delegation(bench.context, request)
    assert [(await stored(bench, one)).client for one in (a, b, c)] == [b"", OTHER, CLIENT]
    assert not (await bench.context.namespace(bench.engine.begin()).require_inode(a)).HasField("delegation")
    await return_delegation(bench.context, request)


async def test_a_request_is_bounded(bench: MetaBench) -> None:
    many = range(1, MAX_DELEGATIONS + 2)
    for request in (
        pb.ReturnDelegationRequest(client=CLIENT, directories=many, numbers=many),
        pb.ReturnDelegationRequest(client=CLIENT, directories=[1, 2], numbers=[1]),
    ):
        with pytest.raises(InvalidArgument):
            await return_delegation(bench.context, request)
