"""A primary knows what its store has, whatever became of the answers about its transactions."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
from threefs_manager.chains import moves
from threefs_manager.configuration_versions import read_versions
from threefs_manager.store.cluster_store import read_routing

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from tests.harness.seeded_random import SeededRandom
from threefs.errors import MaybeCommitted, ThreefsError, Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import Hold
from threefs.wire import manager_pb2 as pb

T = TypeVar("T")

_OPERATIONS = 25
_MOVES_S = 60.0


class MoodyStore(MemoryEngine):
    """Now and then a commit is made or not, and nobody is told; or the store cannot be asked again either."""

    def __init__(self, dice: SeededRandom) -> None:
        super().__init__()
        self.trouble = 0.0
        self._dice = dice

    async def commit(self, attempt: BufferedTransaction) -> None:
        if not self._dice.chance(self.trouble):
            return await super().commit(attempt)
        if self._dice.chance(0.7):
            await super().commit(attempt)
        raise Unavailable("the store is away") if self._dice.chance(0.5) else MaybeCommitted("no answer")


def drawn(dice: SeededRandom, what: Sequence[T]) -> T:
    return what[dice.below(len(what))]


def operations(nodes: MovingNodes, dice: SeededRandom) -> list[Callable[[], Awaitable[object]]]:
    manager, node = nodes.manager, 1 + dice.below(5)
    target = drawn(dice, sorted(nodes.routing.targets))
    hold = drawn(dice, [Hold.NONE, Hold.OFFLINE, Hold.ROTATE])
    current = manager._configuration.current.version
    change = pb.ConfigurationChange(name="moves_filling_disk", value=str(1 + dice.below(4)))
    return [
        lambda: manager.rebalance(pb.RebalanceRequest()),
        lambda: manager.set_draining(pb.SetDrainingRequest(node_id=node, draining=dice.chance(0.5))),
        lambda: manager.set_draining(pb.SetDrainingRequest(node_id=node, draining=False)),
        lambda: manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=2 + dice.below(2))),
        lambda: manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=1 + dice.below(2))),
        lambda: manager.hold_targets(pb.HoldTargetsRequest(targets=[target], hold=hold.value)),
        lambda: manager._configuration.set(
            pb.SetConfigurationRequest(known_version=current, changes=[change], call_id=dice.token(16))
        ),
        lambda: toggle(nodes.living, node),  # silent
        lambda: toggle(nodes.left, node),
        lambda: toggle(nodes.slow, node),
    ]


async def toggle(of: set[int], node: int) -> None:
    of.symmetric_difference_update([node])


async def add(nodes: MovingNodes, node: int) -> None:
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=node)]))
    await nodes.join(node)


async def unknown(nodes: MovingNodes) -> list[str]:
    """What the store has, and the primary does not know."""
    manager = nodes.manager
    store, controller = manager._require_primary()
    stored = {move.chain_id: move for move in map(moves.from_wire, await store.load_moves())}
    versions = await store.read(read_versions)
    routing = await store.read(read_routing)
    chains = {chain.chain_id: list(controller.history.of(chain.chain_id)) for chain in routing.chains.values()}
    known = {
        "routing": routing == nodes.routing,
        "moves": stored == controller.move_executor.moves,
        "balancing": (await store.load_cluster()).balancing == controller.move_executor.balancing,
        "configuration": (versions[-1].configuration.version if versions else 0)
        == manager._configuration.current.version,
        "fenced": not manager._failure_detector._fenced,
        "history": all(not of or of[-1].chain.version == routing.chains[c].version for c, of in chains.items()),
    }
    return [what for what, is_known in known.items() if not is_known]


@pytest.mark.parametrize("seed", range(12))
def test_a_primary_knows_what_its_store_has(seed: int) -> None:
    dice = SeededRandom(seed, "operations")
    engine = MoodyStore(SeededRandom(seed, "store"))

    async def body(nodes: MovingNodes) -> None:
        for node in (4, 5):
            await add(nodes, node)
        engine.trouble = 0.25
        for _ in range(_OPERATIONS):
            with contextlib.suppress(ThreefsError):  # it is refused, or nobody knows
                await drawn(dice, operations(nodes, dice))()
            for _ in range(dice.below(12)):
                await nodes.step()
        engine.trouble = 0.0
        nodes.living.update(range(1, 6))
        nodes.left.clear()
        nodes.slow.clear()
        for _ in range(int(4 * LEASE_S / 0.02)):
            await nodes.step()
        left = await unknown(nodes)
        for _ in range(int(_MOVES_S / 0.02)):
            if not left:
                return
            await nodes.step()  # a change may be under way
            left = await unknown(nodes)
        pytest.fail(f"the primary does not know {left}")

    run_moving(body, engine)
