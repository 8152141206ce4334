"""Tables of chains: made while a cluster runs, and chosen for new files."""

from collections import Counter
from itertools import combinations

import pytest

from tests.harness.interrupted_engine import InterruptedEngine
from tests.harness.moving_nodes import MovingNodes, run_moving
from tests.harness.silent_engine import SilentEngine
from threefs.cluster.manager_records import MOVE, TABLE
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.routing import PublicState, Routing
from threefs.wire import manager_pb2 as pb


def call(number: int = 1, **fields: int) -> pb.CreateTableRequest:
    return pb.CreateTableRequest(call_id=number.to_bytes(16, "big"), **fields)  # type: ignore[arg-type]


def is_whole(routing: Routing) -> bool:
    return all(len(chain.serving) == len(chain.members) for chain in routing.chains.values())


def test_a_new_table_is_on_all_disks_and_the_old_one_keeps_its_chains() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
        await nodes.join(4)
        before = nodes.routing.tables[1]  # type: ignore[index]
        dry = await nodes.manager.create_table(call(targets_per_disk=3, dry_run=True))
        assert len(nodes.routing.tables) == 1, "a dry run changes nothing"
        reply = await nodes.manager.create_table(call(targets_per_disk=3))
        assert (dry.table, dry.targets) == (reply.table, reply.targets) and reply.targets == 12
        await nodes.until(lambda: is_whole(nodes.routing))
        routing = nodes.routing
        assert routing.tables[1] == before  # type: ignore[index]
        made = routing.tables[2]  # type: ignore[index]
        assert list(made) == list(reply.table.chains) and not set(made) & set(before)
        held = Counter(routing.targets[m.target_id].node_id for c in made for m in routing.chains[c].members)
        assert held == {1: 3, 2: 3, 3: 3, 4: 3}
        assert routing.replicas == {1: 2, 2: 2}

    run_moving(body)


def test_a_further_table_brings_other_disks_together() -> None:
    async def body(nodes: MovingNodes) -> None:
        for number in range(4, 10):
            await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=number)]))
            await nodes.join(number)
        met: list[frozenset[int]] = []
        for number in range(2):
            reply = await nodes.manager.create_table(call(number, replicas=3, targets_per_disk=2))
            for chain in reply.table.chains:
                members = nodes.routing.chains[chain].members  # type: ignore[index]
                met += map(frozenset, combinations((nodes.routing.targets[m.target_id].node_id for m in members), 2))
        assert len(met) == 36 and len(set(met)) > 30, "the second table would be as the first, with its 18 pairs"

    run_moving(body)


def test_a_repeat_of_the_call_makes_no_second_table() -> None:
    async def body(nodes: MovingNodes) -> None:
        first = await nodes.manager.create_table(call(replicas=3))
        assert await nodes.manager.create_table(call(replicas=3)) == first
        assert (await nodes.manager.create_table(call(2, replicas=1, targets_per_disk=1))).table.table_id == 3
        assert nodes.routing.replicas == {1: 2, 2: 3, 3: 1}
        seen = [m.target_id for chain in nodes.routing.chains.values() for m in chain.members]
        assert len(seen) == len(set(seen)), "each target is in one chain"

    run_moving(body)


def test_a_repeat_of_the_call_needs_no_room_for_another_table() -> None:
    """Its caller has lost the answer, and was told that nothing was made."""

    async def body(nodes: MovingNodes) -> None:
        first = await nodes.manager.create_table(call(targets_per_disk=60))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=3, draining=True))
        assert await nodes.manager.create_table(call(targets_per_disk=60)) == first
        with pytest.raises(InvalidArgument, match="at most 99 fit"):
            await nodes.manager.create_table(call(2, targets_per_disk=60))

    run_moving(body)


def test_a_table_that_a_repeat_of_the_call_is_told_of_can_be_used() -> None:
    """The first call has made it, and waits for the answer of the store yet."""
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        async def repeat() -> None:
            table = (await nodes.manager.create_table(call(targets_per_disk=2))).table
            status = await nodes.manager.get_status(pb.GetStatusRequest())
            assert {chain.chain_id for chain in status.chains} >= set(table.chains)

        engine.silent_about, engine.after_silence = TABLE, repeat
        await nodes.manager.create_table(call(targets_per_disk=2))
        assert engine.silent_about is None

    run_moving(body, engine)


def test_a_new_chain_is_served_by_those_that_live_and_knows_their_stores() -> None:
    """A disk that is exchanged after that must be found: so no target serves before its store is recorded."""

    async def body(nodes: MovingNodes) -> None:
        nodes.living.discard(1)
        made = (await nodes.manager.create_table(call(replicas=3, targets_per_disk=1))).table.chains[0]
        assert not nodes.routing.chains[made].serving  # type: ignore[index]

        def serving() -> list[int]:
            known = nodes.routing.targets
            return [known[target].node_id for target in nodes.routing.chains[made].serving]  # type: ignore[index]

        while len(serving()) < 2:
            for chain in nodes.routing.chains.values():
                for target in chain.serving:
                    if target > 1_000_000_000:
                        assert nodes.routing.targets[target].store_id == 5
            await nodes.step()
        assert sorted(serving()) == [2, 3]
        nodes.living.add(1)
        await nodes.until(lambda: len(serving()) == 3)

    run_moving(body)


def test_a_chain_whose_disks_are_all_exchanged_later_is_not_served_by_empty_ones() -> None:
    async def body(nodes: MovingNodes) -> None:
        made = (await nodes.manager.create_table(call(replicas=3, targets_per_disk=1))).table.chains[0]
        await nodes.until(lambda: is_whole(nodes.routing))
        nodes.living.clear()
        await nodes.until(lambda: not nodes.routing.chains[made].serving)  # type: ignore[index]
        nodes.store_id = 6
        nodes.living.update((1, 2, 3))
        for _ in range(100):
            await nodes.step()
        states = {member.state for member in nodes.routing.chains[made].members}  # type: ignore[index]
        assert states == {PublicState.LASTSRV}, "nobody has what was acknowledged"

    run_moving(body)


def test_each_table_is_spread_evenly_by_itself_when_nodes_join_and_leave() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.create_table(call(targets_per_disk=4))
        await nodes.until(lambda: is_whole(nodes.routing))
        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=n) for n in (4, 5)]))
        await nodes.join(4)
        await nodes.join(5)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        controller = nodes.manager._controller
        assert controller is not None
        executor = controller.move_executor
        await nodes.until(lambda: not nodes.held()[1] and not executor.moves and not executor.balancing)
        for table in nodes.routing.tables.values():
            held = Counter(
                nodes.routing.targets[m.target_id].node_id for c in table for m in nodes.routing.chains[c].members
            )
            assert len(held) == 4 and max(held.values()) - min(held.values()) <= 1

    run_moving(body)


def test_new_files_take_a_table_whose_chains_take_writes() -> None:
    async def body(nodes: MovingNodes) -> None:
        with pytest.raises(NotFound, match="chain table 2 does not exist"):
            await nodes.manager.set_default_table(pb.SetDefaultTableRequest(table_id=2))
        await nodes.manager.create_table(call())
        with pytest.raises(Unavailable, match="3 of the 3 chains of table 2 take no writes yet"):
            await nodes.manager.set_default_table(pb.SetDefaultTableRequest(table_id=2))
        await nodes.until(lambda: is_whole(nodes.routing))
        dry = await nodes.manager.set_default_table(pb.SetDefaultTableRequest(table_id=2, dry_run=True))
        assert dry.table_before == nodes.routing.default_table == 1
        for _ in range(2):
            await nodes.manager.set_default_table(pb.SetDefaultTableRequest(table_id=2))
        version = nodes.routing.version
        assert nodes.routing.default_table == 2
        assert (await nodes.manager.get_status(pb.GetStatusRequest())).default_table == 2
        await nodes.manager.set_default_table(pb.SetDefaultTableRequest(table_id=1))
        assert nodes.routing.default_table == 1 and nodes.routing.version == version + 1

    run_moving(body)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.CreateTableRequest(), "the id of the call has 0 bytes, not 16"),
        (call(replicas=4), "4 replicas need 4 storage nodes"),
        (call(targets_per_disk=98), "node 1 has 2 targets, and at most 99 fit on a disk: choose at most 97"),
        (call(targets_per_disk=1), "no multiple of 2 replicas"),
        (call(replicas=2, min_replicas=3), "must be 1 to 2"),
    ],
)
def test_a_table_that_cannot_be_is_refused(request_: pb.CreateTableRequest, reason: str) -> None:
    async def body(nodes: MovingNodes) -> None:
        with pytest.raises(InvalidArgument, match=reason):
            await nodes.manager.create_table(request_)
        assert len(nodes.routing.tables) == 1

    run_moving(body)


def test_the_minimum_is_bounded_by_the_replicas_of_the_table() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.create_table(call(replicas=3))
        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=2, min_replicas=3))
        with pytest.raises(InvalidArgument, match="1 to 2, not 3"):
            await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=3))
        assert nodes.routing.min_replicas == {1: 1, 2: 3}

    run_moving(body)


def test_disks_that_drain_get_no_chains_of_a_new_table() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=3, draining=True))
        made = (await nodes.manager.create_table(call())).table
        nodes_of = {
            nodes.routing.targets[m.target_id].node_id
            for chain in made.chains
            for m in nodes.routing.chains[chain].members  # type: ignore[index]
        }
        assert nodes_of == {1, 2}

    run_moving(body)


def sizes(nodes: MovingNodes) -> set[tuple[int, int]]:
    """How many members the chains have, and how many of them serve."""
    return {(len(chain.members), len(chain.serving)) for chain in nodes.routing.chains.values()}


def settled(nodes: MovingNodes) -> bool:
    controller = nodes.manager._controller
    assert controller is not None
    return controller.move_executor.is_settled


@pytest.mark.parametrize("steps", [(3, 2), (1, 3), (3, 1, 2)])
def test_chains_gain_and_lose_copies(steps: tuple[int, ...]) -> None:
    async def body(nodes: MovingNodes) -> None:
        for replicas in steps:
            request = pb.SetReplicasRequest(table_id=1, replicas=replicas, dry_run=True)
            before = nodes.routing
            assert len((await nodes.manager.set_replicas(request)).moves) == 3 and nodes.routing is before
            request.dry_run = False
            await nodes.manager.set_replicas(request)
            await nodes.until(lambda: settled(nodes))
            assert sizes(nodes) == {(replicas, replicas)} and set(nodes.held().values()) == {replicas}
            assert nodes.routing.replicas == {1: replicas} and nodes.routing.min_replicas == {1: 1}
        assert not (await nodes.manager.set_replicas(request)).moves, "it has so many already"

    run_moving(body)


def test_another_number_in_the_middle_takes_back_what_is_not_done() -> None:
    async def body(nodes: MovingNodes) -> None:
        for replicas in (3, 2, 1, 2):
            await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=replicas))
            await nodes.step()
        await nodes.until(lambda: settled(nodes))
        assert sizes(nodes) == {(2, 2)}

    run_moving(body)


def test_another_number_while_the_moves_for_the_first_one_are_stored_keeps_all_copies() -> None:
    """Each chain lost a whole copy, and got an empty one for it."""
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        more, fewer = (pb.SetReplicasRequest(table_id=1, replicas=number) for number in (3, 2))
        await nodes.manager.set_replicas(more)
        await nodes.until(lambda: settled(nodes))
        engine.interrupted_at, engine.meanwhile = MOVE, lambda: nodes.manager.set_replicas(more)
        await nodes.manager.set_replicas(fewer)
        for _ in range(100):
            await nodes.step()
            assert sizes(nodes) == {(3, 3)}
        assert engine.meanwhile is None and settled(nodes)

    run_moving(body, engine)


def test_the_copy_that_does_not_serve_goes() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=3))
        await nodes.until(lambda: settled(nodes))
        nodes.living.discard(2)
        await nodes.until(lambda: sizes(nodes) == {(3, 2)})
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=2))
        await nodes.until(lambda: settled(nodes))
        assert sizes(nodes) == {(2, 2)} and nodes.held() == {1: 3, 2: 0, 3: 3}

    run_moving(body)


@pytest.mark.parametrize(
    ("table_id", "replicas", "reason"),
    [
        (2, 3, "chain table 2 does not exist"),
        (1, 0, "replicas must be 1 to 16, not 0"),
        (1, 4, "4 replicas need 4 storage nodes, and the cluster has 3 that do not drain"),
    ],
)
def test_a_number_of_copies_that_cannot_be_is_refused(table_id: int, replicas: int, reason: str) -> None:
    async def body(nodes: MovingNodes) -> None:
        with pytest.raises((InvalidArgument, NotFound), match=reason):
            await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=table_id, replicas=replicas))

    run_moving(body)


def test_more_copies_are_refused_if_a_node_is_drained_meanwhile() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        drain = pb.SetDrainingRequest(node_id=1, draining=True)
        engine.interrupted_at, engine.meanwhile = TABLE, lambda: nodes.manager.set_draining(drain)
        with pytest.raises(InvalidArgument, match="3 replicas need 3 storage nodes, and the cluster has 2"):
            await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=3))
        await nodes.until(lambda: settled(nodes) and not nodes.held()[1])
        assert sizes(nodes) == {(2, 2)}

    run_moving(body, engine)


def test_copies_are_set_although_the_commit_was_not_answered_and_all_nodes_are_needed() -> None:
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        engine.silent_about = TABLE
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=3))
        assert engine.silent_about is None and nodes.routing.replicas == {1: 3}

    run_moving(body, engine)


def test_a_minimum_above_the_copies_is_lowered_with_them() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=1))
        await nodes.until(lambda: settled(nodes))
        assert nodes.routing.min_replicas == {1: 1} and sizes(nodes) == {(1, 1)}

    run_moving(body)
