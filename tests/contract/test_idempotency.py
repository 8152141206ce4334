"""I9: a mutation whose answer was lost is asked for again, and gets its first answer, whatever happened since."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_meta.context import Context
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.service import bind
from threefs_meta.store.inode_numbers import InodeAllocator

from tests.harness.cluster import LocalCluster
from tests.harness.meta_harness import MetaBench, reported
from tests.harness.mutation_script import Call, Script
from threefs.env.net import RealNet
from threefs.rpc import methods
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import Method
from threefs.rpc.preencoded import PreencodedReply
from threefs.wire import meta_pb2 as pb


class Service:
    """A meta service that is called directly."""

    def __init__(self, context: Context) -> None:
        self._handlers: dict[str, Callable[[Any], Any]] = {}
        bind(self, context)

    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Any], *, quick: bool = False) -> None:
        self._handlers[method.name] = handler

    async def call(self, method: Method[Any, Any], request: Any) -> Any:
        answer = await self._handlers[method.name](request)
        return answer.parsed() if isinstance(answer, PreencodedReply) else answer


async def another(bench: MetaBench) -> Service:
    """A service that shares nothing with the first but the store; the same one after a restart is no different."""
    clock, random = bench.clock, bench.random
    ticks = LogicalClock(bench.engine, lambda: 0.0, clock=clock, random=random)
    await ticks.poll()
    context = Context(
        engine=bench.engine,
        chunks=bench.chunks,
        allocator=InodeAllocator(bench.engine, report=reported, clock=clock, random=random),
        logical_clock=ticks,
        routing=bench.context.routing,
        status=bench.context.status,
        clock=clock,
        random=random,
    )
    return Service(context)


@pytest.mark.parametrize(
    "store", ["good", pytest.param("troubled", marks=pytest.mark.trouble(conflict_rate=0.3, unknown_rate=0.3))]
)
async def test_the_first_answer_comes_again(bench: MetaBench, store: str) -> None:
    """Also where the store itself often does not say whether it has committed."""
    first = Service(bench.context)
    script = Script(first.call, "/script")
    await script.run()
    before = await script.state(first.call)
    for service in (first, await another(bench)):
        assert await script.repeat(service.call) == []
        assert await script.state(service.call) == before, "a repeated mutation changes nothing"


async def test_after_others_have_changed_everything(bench: MetaBench) -> None:
    script = Script(Service(bench.context).call, "/script")
    await script.run()
    await bench.remove("/script", recursive=True)
    await bench.collect_all()
    other = await another(bench)
    assert await script.repeat(other.call) == []
    assert "script" not in await bench.names("/")


async def test_the_script_has_all_mutations(bench: MetaBench) -> None:
    """Mutations of later versions carry an identity and are in it, too. A delegation is granted once, never again."""
    script = Script(Service(bench.context).call, "/script")
    await script.run()
    every = [each for each in vars(methods).values() if isinstance(each, Method) and each.service.endswith("Meta")]
    mutations = {each.name for each in every if "mutation" in each.request.DESCRIPTOR.fields_by_name}
    assert {one.method.name for one in script.asked} == mutations - {methods.DELEGATE.name}


def test_over_a_kill_of_the_service(tmp_path: Path) -> None:
    """Each call is answered, and then the service is gone, so whoever asked may not have heard it."""
    with LocalCluster(tmp_path, storage=1, replicas=1, targets_per_disk=2) as cluster:

        async def with_calls(work: Callable[[Call], Any]) -> Any:
            peers = ConnectionPool(RealNet(), Identity("", os.urandom(16).hex()))

            async def call(method: Method[Any, Any], request: Any) -> Any:
                return await peers.call(cluster.meta.address, method, request, timeout_s=60)

            try:
                return await work(call)
            finally:
                await peers.close()

        async def begin(call: Call) -> tuple[Script, list[Any]]:
            script = Script(call, "/script")
            await script.run()
            counted = pb.ShowQuotaRequest(place=pb.Place(path=b"/script/directory"), caller=pb.Caller())
            while (await call(methods.SHOW_QUOTA, counted)).quota.counting:  # marks inodes in the background
                await asyncio.sleep(0.05)
            return script, await script.state(call)

        script, before = asyncio.run(with_calls(begin))
        cluster.meta.kill()
        cluster.meta.start()
        assert asyncio.run(with_calls(script.repeat)) == []
        assert asyncio.run(with_calls(script.state)) == before
