import pytest
from threefs_meta.ops.return_delegation import MOST_DELEGATIONS, return_delegation

from tests.harness.meta_harness import CLIENT, MetaBench, run
from tests.unit.services.threefs_meta.ops.test_delegate import OTHER, claimed, stored
from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb


def test_each_gives_up_its_own() -> None:
    async def test(fs: MetaBench) -> None:
        a, b, c = [(await fs.mkdir(f"/{name}")).inode for name in "abc"]
        numbers = [await claimed(fs, a), await claimed(fs, b, OTHER), await claimed(fs, c) + 1]
        request = pb.ReturnDelegationRequest(client=CLIENT, directories=[a, b, c, 999], numbers=[*numbers, 1])
        await return_delegation(fs.context, request)
        assert [(await stored(fs, one)).client for one in (a, b, c)] == [b"", OTHER, CLIENT]
        assert not (await fs.context.namespace(fs.engine.begin()).require_inode(a)).HasField("delegation")
        await return_delegation(fs.context, request)

    run(test)


def test_a_request_is_bounded() -> None:
    async def test(fs: MetaBench) -> None:
        many = range(1, MOST_DELEGATIONS + 2)
        for request in (
            pb.ReturnDelegationRequest(client=CLIENT, directories=many, numbers=many),
            pb.ReturnDelegationRequest(client=CLIENT, directories=[1, 2], numbers=[1]),
        ):
            with pytest.raises(InvalidArgument):
                await return_delegation(fs.context, request)

    run(test)
