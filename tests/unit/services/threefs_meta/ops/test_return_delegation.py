import pytest
from threefs_meta.ops.return_delegation import MAX_DELEGATIONS, return_delegation

from tests.harness.meta_harness import CLIENT, MetaBench
from tests.unit.services.threefs_meta.ops.test_delegate import OTHER, claimed, stored
from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb


async def test_each_gives_up_its_own(bench: MetaBench) -> None:
    a, b, c = [(await bench.mkdir(f"/{name}")).inode for name in "abc"]
    numbers = [await claimed(bench, a), await claimed(bench, b, OTHER), await claimed(bench, c) + 1]
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
