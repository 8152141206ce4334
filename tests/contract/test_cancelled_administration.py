"""A command that is cancelled leaves the manager with what its store says."""

import asyncio
from typing import Any

from threefs_manager.service import Manager

from tests.harness.manager_bench import Bench, run
from tests.unit.services.threefs_manager.test_service import PLAN
from threefs.ids import TableId
from threefs.rpc.methods import SET_MIN_REPLICAS
from threefs.wire import manager_pb2 as pb


class Handlers(dict[Any, Any]):
    """What a server was given."""

    def serve(self, method: Any, handler: Any) -> None:
        self[method] = handler


def test_what_was_stored_is_published_when_the_call_was_cancelled_at_any_moment() -> None:
    """After each number of turns of the loop. A change that nobody heard of was refused when it was asked for again."""

    async def body(bench: Bench, manager: Manager) -> None:
        handlers = Handlers()
        manager.bind(handlers)
        await manager.init(PLAN)
        store = manager._store
        assert store is not None
        change = store.change

        async def late(function: Any) -> Any:
            done = await change(function)
            await asyncio.sleep(0)  # as of an engine whose commits are synced elsewhere
            return done

        store.change = late  # type: ignore[method-assign]
        cancelled = 0
        for turns in range(40):
            wanted = 1 + turns % 2
            work = asyncio.ensure_future(
                handlers[SET_MIN_REPLICAS](pb.SetMinReplicasRequest(table_id=1, min_replicas=wanted))
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])
            cancelled += work.cancelled()
            published = manager._publisher.routing

            async def nothing(writer: object) -> None:
                pass

            _, stored = await change(nothing)
            assert published.version == stored.version, turns
            assert published.min_replicas == stored.min_replicas and TableId(1) in stored.min_replicas
        assert 0 < cancelled < 40

    run(body)
