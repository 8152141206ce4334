"""Who may join, drain and leave."""

import asyncio

import pytest
from threefs_manager.nodes.membership import are_known
from threefs_manager.store.restored_versions import unknown_domain

from tests.harness.interrupted_engine import InterruptedEngine
from tests.harness.moving_nodes import MovingNodes, run_moving
from tests.harness.virtual_time import run_virtual
from threefs.cluster.manager_records import CHAIN, NODE
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.wire import manager_pb2 as pb


def planned(node: int, domain: str = "") -> pb.AddNodesRequest:
    return pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=node, domain=domain)])


def test_a_node_joins_once_and_keeps_its_domain() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4, "rack"))
        await nodes.manager.add_nodes(planned(4, "rack"))
        assert nodes.routing.nodes[4].domain == "rack"  # type: ignore[index]
        with pytest.raises(AlreadyExists, match="failure domain 'rack', not 'node-4'"):
            await nodes.manager.add_nodes(planned(4))
        for request, reason in (
            (pb.AddNodesRequest(), "1 to 4096 nodes"),
            (planned(0), "must be 1 to"),
            (planned(5, "x" * 300), "300 characters"),
            (pb.AddNodesRequest(storage=[*planned(5).storage, *planned(5).storage]), "named twice"),
        ):
            with pytest.raises(InvalidArgument, match=reason):
                await nodes.manager.add_nodes(request)

    run_moving(body)


@pytest.mark.parametrize("domain", ["rack-2", ""])
def test_a_node_that_the_backup_did_not_know_gets_its_domain_once(domain: str) -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4, unknown_domain(4)))
        assert not are_known(nodes.routing, planned(4)), "the call waits for those who know a newer store"
        assert not (
            await nodes.manager.add_nodes(pb.AddNodesRequest(storage=planned(4).storage, dry_run=True))
        ).new_nodes
        assert nodes.routing.nodes[4].domain == "unknown-4"  # type: ignore[index]
        assert not (await nodes.manager.add_nodes(planned(4, domain))).new_nodes
        assert nodes.routing.nodes[4].domain == (domain or "node-4")  # type: ignore[index]
        assert are_known(nodes.routing, planned(4))
        with pytest.raises(AlreadyExists):
            await nodes.manager.add_nodes(planned(4, "elsewhere"))

    run_moving(body)


def test_a_dry_run_says_which_nodes_are_new_and_adds_none() -> None:
    async def body(nodes: MovingNodes) -> None:
        request = pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=n) for n in (1, 4, 5)], dry_run=True)
        version = nodes.routing.version
        assert list((await nodes.manager.add_nodes(request)).new_nodes) == [4, 5]
        with pytest.raises(AlreadyExists):
            await nodes.manager.add_nodes(pb.AddNodesRequest(storage=planned(1, "rack").storage, dry_run=True))
        assert nodes.routing.version == version and 4 not in nodes.routing.nodes
        request.dry_run = False
        assert list((await nodes.manager.add_nodes(request)).new_nodes) == [4, 5]
        assert not (await nodes.manager.add_nodes(request)).new_nodes, "a repeat"

    run_moving(body)


def test_a_node_is_not_drained_if_too_few_would_stay() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        with pytest.raises(InvalidArgument, match="2 replicas, and only 1 storage nodes would stay"):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=2, draining=True))
        with pytest.raises(NotFound, match="no storage node 9"):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=9, draining=True))

    run_moving(body)


def test_of_two_calls_at_the_same_time_only_one_drains_if_too_few_would_stay() -> None:
    async def body(nodes: MovingNodes) -> None:
        calls = (nodes.manager.set_draining(pb.SetDrainingRequest(node_id=n, draining=True)) for n in (1, 2))
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, InvalidArgument) for each in found] == [False, True]
        assert [n for n, node in nodes.routing.nodes.items() if node.draining] == [1]

    run_moving(body)


def test_a_node_is_not_drained_if_more_replicas_are_asked_for_meanwhile() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        request = pb.SetReplicasRequest(table_id=1, replicas=3)
        engine.interrupted_at, engine.meanwhile = NODE, lambda: nodes.manager.set_replicas(request)
        with pytest.raises(InvalidArgument, match="3 replicas, and only 2 storage nodes would stay"):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        assert nodes.routing.replicas == {1: 3} and not nodes.routing.nodes[1].draining  # type: ignore[index]

    run_moving(body, engine)


def test_a_node_is_not_drained_if_another_one_leaves_meanwhile_that_would_have_stayed() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=3, draining=True))
        await nodes.until(lambda: not nodes.held()[3])
        await nodes.manager.add_nodes(planned(4))
        remove = pb.RemoveNodeRequest(node_id=4)
        engine.interrupted_at, engine.meanwhile = NODE, lambda: nodes.manager.remove_node(remove)
        with pytest.raises(InvalidArgument, match="2 replicas, and only 1 storage nodes would stay"):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=2, draining=True))
        assert 4 not in nodes.routing.nodes and not nodes.routing.nodes[2].draining  # type: ignore[index]

    run_moving(body, engine)


def test_an_empty_node_that_chains_need_for_their_copies_does_not_leave() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4))
        drains = [pb.SetDrainingRequest(node_id=number, draining=True) for number in (1, 2)]
        await nodes.manager.set_draining(drains[0])
        engine.interrupted_at, engine.meanwhile = NODE, lambda: nodes.manager.set_draining(drains[1])
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="2 replicas, and only 1 storage nodes would stay"):
                await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=4))
        with pytest.raises(InvalidArgument, match="only 1 storage nodes would stay"):
            await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=4, dry_run=True))

    run_moving(body, engine)


def test_a_node_that_leaves_meanwhile_is_not_drained() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4))
        remove = nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=4))
        drain = nodes.manager.set_draining(pb.SetDrainingRequest(node_id=4, draining=True))
        assert isinstance((await asyncio.gather(remove, drain, return_exceptions=True))[1], NotFound)

    run_moving(body)


def test_only_an_empty_node_leaves() -> None:
    async def body(nodes: MovingNodes) -> None:
        for dry_run in (True, False):
            with pytest.raises(InvalidArgument, match="node 1 has 2 targets, and 0 are on their way"):
                await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=1, dry_run=dry_run))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1])
        nodes.living.discard(1)
        await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=1, dry_run=True))
        assert 1 in nodes.routing.nodes
        await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=1))
        assert 1 not in nodes.routing.nodes
        assert all(target.node_id != 1 for target in nodes.routing.targets.values())

    run_moving(body)


def test_a_node_that_is_undrained_keeps_what_has_not_begun_to_move() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        controller = nodes.manager._controller
        assert controller is not None
        await nodes.until(lambda: not controller.move_executor.moves)
        assert sum(nodes.held().values()) == 6 and nodes.held()[1] >= 1

    run_moving(body)


def test_a_manager_without_a_cluster_takes_no_nodes() -> None:
    """Its routing would have nodes and no chains, and clients would take it for that of a cluster."""

    async def body() -> None:
        nodes = MovingNodes(MemoryEngine())
        await nodes.manager.leading.wait()
        for call in (
            nodes.manager.add_nodes(planned(4)),
            nodes.manager.add_nodes(pb.AddNodesRequest(storage=planned(4).storage, dry_run=True)),
            nodes.manager.rebalance(pb.RebalanceRequest()),
        ):
            with pytest.raises(Unavailable, match="no plan yet"):
                await call
        assert nodes.routing.version == 0
        await nodes.end()

    run_virtual(body())


# ---- a manager that is suspended


async def suspend() -> None:
    asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]


def test_a_rebalance_goes_on_although_the_manager_was_suspended_while_it_changed_a_chain() -> None:
    """All nodes were taken for silent, so no disk was there to be levelled."""
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4))
        await nodes.join(4)
        await nodes.step()

        async def level() -> None:
            await nodes.manager.rebalance(pb.RebalanceRequest())
            engine.meanwhile = suspend  # in the next attempt: this one does not know of it

        engine.interrupted_at, engine.meanwhile = CHAIN, level
        nodes.left.add(3)
        await nodes.until(lambda: engine.meanwhile is None)
        nodes.left.clear()
        await nodes.until(lambda: nodes.held()[4] == 1)

    run_moving(body, engine)


def test_the_first_call_after_a_suspension_finds_the_nodes_alive() -> None:
    """Status showed all of them as dead, and nothing was planned."""

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(planned(4))
        await nodes.join(4)
        await nodes.step()
        await suspend()
        assert [node.alive for node in (await nodes.manager.get_status(pb.GetStatusRequest())).nodes] == [True] * 4
        await suspend()
        assert (await nodes.manager.rebalance(pb.RebalanceRequest(dry_run=True))).moves
        await suspend()
        drain = pb.SetDrainingRequest(node_id=1, draining=True, dry_run=True)
        assert (await nodes.manager.set_draining(drain)).moves
        await suspend()
        more = pb.SetReplicasRequest(table_id=1, replicas=3, dry_run=True)
        assert (await nodes.manager.set_replicas(more)).moves

    run_moving(body)
