"""Every method of the contract is served."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_meta.service import bind

from tests.harness.meta_harness import MetaBench, at
from threefs.rpc.methods import LIST, MKDIR, REMOVE, SET_QUOTA, STAT, Method
from threefs.wire import meta_pb2 as pb


class Served:
    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {}

    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]], *, quick: bool = False) -> None:
        self.handlers[method.name] = handler


async def test_all_methods_are_bound_to_their_operation() -> None:
    bench, served = await MetaBench().start(), Served()
    bind(served, bench.context)
    assert set(served.handlers) == {m.name for m in pb.DESCRIPTOR.services_by_name["Meta"].methods}
    made = await served.handlers[MKDIR.name](
        pb.MkdirRequest(mutation=bench.mutation(), place=at("/d"), mode=0o755, caller=pb.Caller())
    )
    assert (await served.handlers[STAT.name](pb.StatRequest(place=at("/d")))).inode.inode == made.inode.inode


async def test_a_request_without_a_user_is_of_the_overflow_user() -> None:
    """A program that forgets to say for whom it asks must not get what only root may have."""
    bench, served = await MetaBench().start(), Served()
    bind(served, bench.context)
    await bench.mkdir("/private", mode=0o700)
    await bench.create("/private/a")
    wanted: list[tuple[Method[Any, Any], Any]] = [
        (MKDIR, pb.MkdirRequest(mutation=bench.mutation(), place=at("/d"), mode=0o755)),
        (STAT, pb.StatRequest(place=at("/private/a"))),
        (LIST, pb.ListRequest(place=at("/private"))),
        (REMOVE, pb.RemoveRequest(mutation=bench.mutation(), place=at("/private"), recursive=True)),
        (SET_QUOTA, pb.SetQuotaRequest(mutation=bench.mutation(), place=at("/"), limit_bytes=1)),
    ]
    for method, request in wanted:
        with pytest.raises(PermissionError):
            await served.handlers[method.name](request)
    assert (await served.handlers[STAT.name](pb.StatRequest(place=at("/private")))).inode.type == pb.DIRECTORY
