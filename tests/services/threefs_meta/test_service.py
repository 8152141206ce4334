"""Every method of the contract is served."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from threefs_meta.service import bind

from tests.support.metadata import MetaBench, at
from threefs.rpc.methods import MKDIR, STAT, Method
from threefs.wire import meta_pb2 as pb


class Served:
    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {}

    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]], *, quick: bool = False) -> None:
        self.handlers[method.name] = handler


def test_all_methods_are_bound_to_their_operation() -> None:
    async def test() -> None:
        bench, served = await MetaBench().start(), Served()
        bind(served, bench.context)
        assert set(served.handlers) == {m.name for m in pb.DESCRIPTOR.services_by_name["Meta"].methods}
        made = await served.handlers[MKDIR.name](pb.MkdirRequest(mutation=bench.mutation(), place=at("/d")))
        assert (await served.handlers[STAT.name](pb.StatRequest(place=at("/d")))).inode.inode == made.inode.inode

    asyncio.run(test())
