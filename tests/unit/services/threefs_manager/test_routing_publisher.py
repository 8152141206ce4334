import asyncio
import dataclasses

import pytest
from threefs_manager.routing_publisher import RoutingPublisher

from threefs import routing as routing_module
from threefs.errors import NotPrimary
from threefs.routing import EMPTY, Routing


def snapshot(version: int) -> Routing:
    return dataclasses.replace(EMPTY, version=version, cluster_id="c")


def published(version: int) -> RoutingPublisher:
    publisher = RoutingPublisher()
    publisher.publish(snapshot(version))
    return publisher


async def test_a_call_that_knows_another_version_is_answered_at_once() -> None:
    publisher = published(5)
    assert await publisher.wait_newer(4, 60_000) == snapshot(5)
    assert await publisher.wait_newer(9, 60_000) == snapshot(5)
    assert await publisher.wait_newer(5, 0) is None
    assert await publisher.wait_newer(5, 1) is None


async def test_all_waiting_calls_get_the_next_snapshot() -> None:
    publisher = published(5)
    waiting = [asyncio.create_task(publisher.wait_newer(5, 60_000)) for _ in range(3)]
    await asyncio.sleep(0)
    publisher.publish(snapshot(6))
    assert await asyncio.gather(*waiting) == [snapshot(6)] * 3


def test_a_snapshot_that_is_overtaken_is_not_published() -> None:
    publisher = published(6)
    publisher.publish(snapshot(5))
    assert publisher.routing == snapshot(6)


async def test_the_end_of_a_term_ends_the_waiting() -> None:
    publisher = published(5)
    waiting = asyncio.create_task(publisher.wait_newer(5, 60_000))
    await asyncio.sleep(0)
    publisher.end_term()
    with pytest.raises(NotPrimary):
        await waiting
    with pytest.raises(NotPrimary):
        await publisher.wait_newer(5, 60_000)


def test_the_message_is_made_once_and_is_that_of_the_snapshot_asked_for() -> None:
    publisher = published(5)
    message = publisher.message(publisher.routing)
    assert message is publisher.message(snapshot(5)) and message.version == 5
    assert publisher.message(snapshot(4)).version == 4
    publisher.publish(snapshot(6))
    assert publisher.message(publisher.routing) == routing_module.to_wire(snapshot(6))
