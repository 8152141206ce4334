import asyncio
import dataclasses

import pytest
from threefs_manager.routing_publisher import RoutingPublisher, shielded

from threefs import configuration, routing_changes
from threefs import routing as routing_module
from threefs.configuration import Configuration
from threefs.errors import NotPrimary
from threefs.ids import NodeId
from threefs.routing import EMPTY, Node, NodeKind, Routing
from threefs.wire import manager_pb2 as pb


def snapshot(version: int) -> Routing:
    return dataclasses.replace(EMPTY, version=version, cluster_id="c")


def asks(version: int, wait_ms: int = 60_000, known_configuration: int | None = None) -> pb.GetRoutingRequest:
    return pb.GetRoutingRequest(known_version=version, wait_ms=wait_ms, known_configuration=known_configuration)


def answer(version: int) -> pb.GetRoutingReply:
    return pb.GetRoutingReply(routing=routing_module.to_wire(snapshot(version)))


def published(version: int) -> RoutingPublisher:
    publisher = RoutingPublisher()
    publisher.publish(snapshot(version))
    return publisher


async def test_a_call_that_knows_another_version_is_answered_at_once() -> None:
    publisher = published(5)
    assert (await publisher.answer(asks(4))).parsed() == answer(5)
    assert (await publisher.answer(asks(9))).parsed() == answer(5)
    assert (await publisher.answer(asks(5, 0))).parsed() == pb.GetRoutingReply()
    assert (await publisher.answer(asks(5, 1))).parsed() == pb.GetRoutingReply()


async def test_all_waiting_calls_get_the_next_snapshot() -> None:
    publisher = published(5)
    waiting = [asyncio.create_task(publisher.answer(asks(5))) for _ in range(3)]
    await asyncio.sleep(0)
    publisher.publish(snapshot(6))
    assert [found.parsed() for found in await asyncio.gather(*waiting)] == [answer(6)] * 3


def test_a_snapshot_that_is_overtaken_is_not_published() -> None:
    publisher = published(6)
    publisher.publish(snapshot(5))
    assert publisher.routing == snapshot(6)


async def test_the_end_of_a_term_ends_the_waiting() -> None:
    publisher = published(5)
    waiting = asyncio.create_task(publisher.answer(asks(5)))
    await asyncio.sleep(0)
    publisher.end_term()
    with pytest.raises(NotPrimary):
        await waiting
    with pytest.raises(NotPrimary):
        await publisher.answer(asks(5))


def test_the_message_is_made_once_and_is_that_of_the_snapshot_asked_for() -> None:
    publisher = published(5)
    message = publisher.message(publisher.routing)
    assert message is publisher.message(snapshot(5)) and message.version == 5
    assert publisher.message(snapshot(4)).version == 4
    publisher.publish(snapshot(6))
    assert publisher.message(publisher.routing) == routing_module.to_wire(snapshot(6))


async def test_a_snapshot_with_the_number_of_one_before_it_is_sent_as_it_is() -> None:
    """Also the empty one of a manager without a cluster, to a caller that comes from one."""
    publisher = RoutingPublisher()
    assert (await publisher.answer(asks(5))).parsed() == pb.GetRoutingReply(routing=routing_module.to_wire(EMPTY))
    publisher.publish(snapshot(5))
    assert (await publisher.answer(asks(4))).parsed() == answer(5)
    publisher.end_term()
    restored = dataclasses.replace(snapshot(5), cluster_id="d")
    publisher.start_term(restored, 2)
    expected = pb.GetRoutingReply(routing=routing_module.to_wire(restored), term=2)
    assert (await publisher.answer(asks(4))).parsed() == expected
    assert publisher.message(restored) == expected.routing


async def test_a_configuration_goes_to_those_who_follow_it_and_do_not_know_it() -> None:
    publisher = published(5)
    waiting = asyncio.create_task(publisher.answer(asks(5, known_configuration=0)))
    older = asyncio.create_task(publisher.answer(asks(5)))
    await asyncio.sleep(0)
    newest = Configuration(1, 77, {"log_level": "debug"})
    publisher.publish_configuration(newest)
    reply = (await waiting).parsed()
    assert not reply.HasField("routing") and configuration.from_wire(reply.configuration) == newest
    assert (await older).parsed() == pb.GetRoutingReply(), "it asks again"
    assert (await publisher.answer(asks(5, 0, 77))).parsed() == pb.GetRoutingReply()
    both = (await publisher.answer(asks(0, 0, 88))).parsed()  # of a version that was lost with a store
    assert both.routing.version == 5 and both.configuration.version == 1
    assert (await publisher.answer(asks(0, 0))).parsed() == answer(5)


async def test_a_change_that_is_stored_is_published_although_the_caller_is_gone() -> None:
    steps: list[str] = []
    stored = asyncio.Event()

    async def handler(request: str) -> str:
        steps.append(f"store {request}")
        await stored.wait()
        steps.append("publish")
        return "done"

    call = asyncio.ensure_future(shielded(handler)("x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0)
    assert steps == ["store x"]
    stored.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert steps == ["store x", "publish"]


def with_nodes(version: int, *ports: int) -> Routing:
    """The nodes 1, 2, ... at these ports."""
    nodes = {NodeId(n): Node(NodeId(n), NodeKind.META, "", f"host:{port}", 1) for n, port in enumerate(ports, 1)}
    return dataclasses.replace(snapshot(version), nodes=nodes)


async def answered(publisher: RoutingPublisher, version: int, term: int) -> pb.GetRoutingReply:
    reply = await publisher.answer(pb.GetRoutingRequest(known_version=version, known_term=term))
    return reply.parsed()


async def test_a_caller_of_the_same_term_gets_what_has_changed() -> None:
    publisher = RoutingPublisher()
    publisher.start_term(first := with_nodes(5, 1, 2, 3, 4, 5, 6), 77)
    publisher.publish(second := with_nodes(6, 1, 2, 3, 4, 5, 66))
    publisher.publish(third := with_nodes(8, 1, 2, 33, 4, 5))
    for known in (first, second):
        reply = await answered(publisher, known.version, 77)
        assert not reply.HasField("routing") and reply.term == 77
        assert routing_changes.from_wire(reply.changes).applied_to(known) == third
    assert [node.node_id for node in (await answered(publisher, 6, 77)).changes.changed.nodes] == [3]
    whole = pb.GetRoutingReply(routing=routing_module.to_wire(third), term=77)
    for version, term in ((6, 76), (6, 0), (7, 77), (9, 77), (0, 0)):
        assert await answered(publisher, version, term) == whole, (version, term)
    publisher.start_term(third, 78)
    assert (await answered(publisher, 6, 77)).HasField("routing"), (
        "a version of another term may have said other things"
    )
    publisher.publish(with_nodes(9, 2, 3, 4, 5))
    assert (await answered(publisher, 8, 78)).HasField("routing"), "nearly all has changed"


async def test_a_manager_remembers_the_last_changes_only() -> None:
    publisher = RoutingPublisher()
    publisher.start_term(with_nodes(1, *range(8)), 77)
    for version in range(2, 400):
        publisher.publish(with_nodes(version, version, *range(7)))
    assert (await answered(publisher, 398, 77)).HasField("changes")
    assert (await answered(publisher, 150, 77)).HasField("changes")
    assert (await answered(publisher, 3, 77)).HasField("routing")


async def test_what_callers_say_that_they_know_takes_no_memory() -> None:
    """Anyone may name any version of the present term, as often as he likes."""
    publisher = RoutingPublisher()
    publisher.start_term(with_nodes(1, *range(8)), 77)
    publisher.publish(with_nodes(2, 88, *range(7)))
    for version in range(3, 3000):
        assert (await answered(publisher, version, 77)).HasField("routing")
    assert len(publisher._from_base) <= 1
