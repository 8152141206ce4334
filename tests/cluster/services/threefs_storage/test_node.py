"""A storage process put together, with a manager beside it, over real sockets and a real disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threefs_manager.election import Election
from threefs_manager.service import Manager
from threefs_manager.store.cluster_store import read_cluster
from threefs_storage import node as storage_node
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings
from threefs_storage.targets import Targets

from tests.harness.chain_harness import until
from tests.harness.rpc import identity
from threefs.background import cancel_and_wait
from threefs.cluster.kept_routing import KeptRouting
from threefs.cluster.manager_client import FramedManagerClient
from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.errors import DiskFailed
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.routing import PublicState, Routing, Target
from threefs.rpc.server import Server
from threefs.wire import manager_pb2 as pb


class Bench:
    def __init__(self, directory: Path, targets_per_disk: int = 1) -> None:
        self._directory = directory
        self._targets_per_disk = targets_per_disk
        self._disk = RealDisk(threads=2)
        self._engine = MemoryEngine()
        self.server = Server(RealNet(), identity(""))
        self.manager = Manager(
            self._engine,
            Election(self._engine, "one", length_s=0.4, exclusive=True),
            lease_s=2.0,
            on_cluster=self.server.join,
        )

    async def __aenter__(self) -> "Bench":
        self.manager.bind(self.server)
        self.address = await self.server.start("127.0.0.1", 0)
        self._running = asyncio.create_task(self.manager.run())
        await self.manager.leading.wait()
        nodes = [pb.PlannedNode(node_id=n) for n in (1, 2)]
        await self.manager.init(
            pb.InitRequest(storage=nodes, replicas=2, targets_per_disk=self._targets_per_disk, lease_ms=2000)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.resign()
        await cancel_and_wait(self._running)
        await self.server.stop(1.0)
        await self._disk.close()

    async def node(self, number: int) -> StorageNode:
        node = self.unstarted(number)
        await node.start()
        return node

    def unstarted(self, number: int) -> StorageNode:
        directory = self._directory / f"node-{number}"
        directory.mkdir(exist_ok=True)
        return StorageNode(
            Settings(node_id=number, data_dir=directory, manager=self.address, control=""),
            net=RealNet(),
            disk=self._disk,
            managers=lambda peers: FramedManagerClient(peers, self.address),
        )

    def states(self, chain_id: int = 1) -> dict[int, PublicState]:
        chain = self.manager._publisher.routing.chains[ChainId(chain_id)]
        return {member.target_id // 100: member.state for member in chain.members}


async def test_a_clean_stop_hands_over_at_once_and_a_start_comes_back(tmp_path: Path) -> None:
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        (target,) = one.targets
        await until(lambda: target.leased_until > 0)
        await two.stop()
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.OFFLINE})
        two = await bench.node(2)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        await one.stop()
        await two.stop()
        await until(lambda: PublicState.LASTSRV in bench.states().values())


async def test_a_chain_version_is_durable_in_the_store_before_the_node_acts_in_it(tmp_path: Path) -> None:
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        (target,) = one.targets
        assert one.targets.stores()[0].kept.chain.version == target.chain.version, "since it was taken in"
        before, held = target.chain.version, asyncio.Event()
        keep = target.engine.keep_note

        async def slow(name: str, value: bytes) -> None:
            await held.wait()
            await keep(name, value)

        target.engine.keep_note = slow
        await two.stop()
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.OFFLINE})
        await asyncio.sleep(0.1)
        assert target.chain.version == before
        held.set()
        await until(lambda: target.chain.version > before)
        assert one.targets.stores()[0].kept.chain.version == target.chain.version
        await one.stop()


async def test_the_store_keeps_its_identity_until_it_is_wiped(tmp_path: Path) -> None:
    async with Bench(tmp_path) as bench:
        seen = []
        for _ in range(2):
            node = await bench.node(1)
            seen += [store.store_id for store in node.targets.stores()]
            await node.stop()
        assert seen[0] == seen[1] != 0


async def test_no_routing_is_followed_any_more_when_the_work_on_targets_ends(tmp_path: Path) -> None:
    """One that took a target away began to delete it, beside the stop that closes all stores: the stop failed."""
    async with Bench(tmp_path) as bench:
        node = await bench.node(1)
        following: list[int] = []
        stop = node.storage.stop

        async def looked_at() -> None:
            following.append(len(node._cluster._background))
            await stop()

        node.storage.stop = looked_at  # type: ignore[method-assign]
        await node.stop()
        assert following == [0]


async def test_two_routings_at_once_open_a_store_once(tmp_path: Path) -> None:
    async with Bench(tmp_path) as bench:
        node = await bench.node(1)
        (target,) = node.targets
        await target.engine.close()
        node.targets.by_id.clear()  # as before a routing that gives this node the target
        opened: list[Path] = []
        open_engine = node.targets._open_engine

        async def counted(directory: Path) -> ChunkEngine:
            opened.append(directory)
            return await open_engine(directory)

        node.targets._open_engine = counted  # type: ignore[method-assign]
        await asyncio.gather(*(node._adopt(node._cluster.routing) for _ in range(2)))
        assert len(opened) == 1 and [other.target_id for other in node.targets] == [target.target_id]
        await node.stop()


async def test_a_target_that_could_not_be_opened_is_tried_again_without_a_new_routing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chain had a copy less until something else changed the routing."""
    monkeypatch.setattr(storage_node, "_OPENING_PAUSE_S", 0.05)
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        (target,) = one.targets
        open_engine, tries, fails = one.targets._open_engine, 0, True

        async def failing(directory: Path) -> ChunkEngine:
            nonlocal tries
            tries += 1
            if fails:
                raise DiskFailed("input/output error")
            return await open_engine(directory)

        one.targets._open_engine = failing  # type: ignore[method-assign]
        await target.engine.close()
        one.targets.by_id.clear()  # as before a routing that gives this node the target
        one.storage._started.clear()
        await until(lambda: bench.states() == {1: PublicState.OFFLINE, 2: PublicState.SERVING})
        version = bench.manager._publisher.routing.version
        await until(lambda: one._cluster.routing.version == version and tries > 2)
        fails = False
        await until(lambda: 101 in one.storage._started)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        await one.stop()
        await two.stop()


async def test_a_store_that_cannot_be_opened_at_the_start_keeps_only_its_own_target_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended, again and again. An empty store that comes later must not pass for that of before."""
    monkeypatch.setattr(storage_node, "_OPENING_PAUSE_S", 0.05)
    async with Bench(tmp_path, targets_per_disk=2) as bench:
        one, two = await bench.node(1), await bench.node(2)
        both = {1: PublicState.SERVING, 2: PublicState.SERVING}
        await until(lambda: bench.states(1) == bench.states(2) == both)
        await two.stop()
        await until(lambda: bench.states(1)[2] is bench.states(2)[2] is PublicState.OFFLINE)
        closed = one.targets.stores()
        await one.stop()
        one = bench.unstarted(1)
        open_engine, fails, first = one.targets._open_engine, True, closed[0].target_id

        async def failing(directory: Path) -> ChunkEngine:
            if fails and directory.name == f"target-{first}":
                raise DiskFailed("input/output error")
            return await open_engine(directory)

        one.targets._open_engine = failing  # type: ignore[method-assign]
        await one.start()
        await until(lambda: bench.states(2)[1] is PublicState.SERVING)
        status = await bench.manager.get_status(pb.GetStatusRequest())
        (node,) = [row for row in status.nodes if row.node.node_id == 1]
        assert [report.failure for report in node.targets if report.target_id == first] == [
            "its store cannot be opened: input/output error"
        ]
        assert bench.states(1)[1] is PublicState.LASTSRV
        known = bench.manager._publisher.routing.targets[TargetId(first)]
        assert known.store_id == closed[0].store_id, "an empty one would be another one"
        fails = False
        await until(lambda: bench.states(1)[1] is PublicState.SERVING)
        await one.stop()


async def test_a_node_that_is_registered_only_when_all_its_stores_are_open_tries_them_again_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that was restored waits for what each store keeps. The node waited for the manager, for ever."""
    monkeypatch.setattr(storage_node, "_OPENING_PAUSE_S", 0.05)
    async with Bench(tmp_path, targets_per_disk=2) as bench:
        one = await bench.node(1)
        first = one.targets.stores()[0].target_id
        await one.stop()
        one = bench.unstarted(1)
        open_engine, register, tries = one.targets._open_engine, one._registration.start, list[str]()

        async def failing(directory: Path) -> ChunkEngine:
            tries.append(directory.name)
            if tries.count(f"target-{first}") <= 2 and directory.name == f"target-{first}":
                raise DiskFailed("input/output error")
            return await open_engine(directory)

        async def register_when_all_are_open(address: str) -> None:
            assert not all(store.HasField("kept") for store in one.targets.stores())
            await until(lambda: all(store.HasField("kept") for store in one.targets.stores()))
            await register(address)

        one.targets._open_engine = failing  # type: ignore[method-assign]
        one._registration.start = register_when_all_are_open  # type: ignore[method-assign]
        await one.start()
        assert len(list(one.targets)) == 2
        await one.stop()


async def test_a_target_that_leaves_the_routing_while_its_store_is_opened_is_opened_once(tmp_path: Path) -> None:
    """The process ended, because its own store was locked (seed 7493)."""
    async with Bench(tmp_path) as bench:
        await (await bench.node(1)).stop()
        node = bench.unstarted(1)
        open_targets, find_unnamed = node.targets.open, node.targets.unnamed.find
        seen: list[Routing] = []

        async def open_by(routing: Routing, **more: Any) -> None:
            seen.append(routing)
            await open_targets(routing, **more)
            node._cluster.routing = replace(routing)  # the next one, which may lack a target

        async def find_by(own: Sequence[TargetId], routing: Routing) -> None:
            seen.append(routing)
            await find_unnamed(own, routing)

        node.targets.open, node.targets.unnamed.find = open_by, find_by  # type: ignore[method-assign]
        await node.start()
        assert len(seen) == 2 and seen[0] is seen[1]
        await node.stop()


async def test_stores_of_an_earlier_life_of_the_node_are_in_the_status(tmp_path: Path) -> None:
    """It was drained and removed while it was dead, and joined again with its disk."""
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        await one.stop()
        (tmp_path / "node-1" / "target-901").mkdir()
        (tmp_path / "node-1" / "target-901" / "blocks").write_bytes(bytes(8192))
        one = await bench.node(1)

        async def strays() -> list[pb.StrayStores]:
            status = await bench.manager.get_status(pb.GetStatusRequest())
            return [row.stray_stores for row in status.nodes]

        while not (await strays())[0].targets:
            await asyncio.sleep(0.01)
        assert await strays() == [pb.StrayStores(targets=[901], bytes=8192), pb.StrayStores()]
        assert (tmp_path / "node-1" / "target-901" / "blocks").exists()
        await one.stop()
        await two.stop()


async def test_a_manager_hears_of_the_highest_number_that_the_routing_has_ever_had(tmp_path: Path) -> None:
    """It was restored, and gave the number out again: the store that lies on the disk passed for that of the new
    target."""
    far = TargetId(FIRST_ADDED_TARGET + 100_000)
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        routing, place = one._cluster.routing, tmp_path / "node-1"
        await one.stop()
        with_far = replace(routing, targets={**routing.targets, far: Target(far, NodeId(2), ChainId(1))})
        for version in (with_far, routing):
            KeptRouting(place, 1).keep(version)
        one = await bench.node(1)
        assert (await read_cluster(bench._engine.begin())).next_target == far
        await one.stop()
        await two.stop()


async def test_a_store_that_was_set_aside_does_not_keep_a_node_with_a_new_target_from_starting(tmp_path: Path) -> None:
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        await one.stop()
        (tmp_path / "node-1" / "target-101").rename(tmp_path / "node-1" / "target-901")
        one = await bench.node(1)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        assert (tmp_path / "node-1" / "target-901").exists()
        await one.stop()
        await two.stop()


async def test_a_routing_is_heard_of_while_stores_are_being_opened(tmp_path: Path) -> None:
    """An administrator takes a target out of service whose damaged store would give way to an empty one."""
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        async with one._adopting:
            await bench.manager.hold_targets(pb.HoldTargetsRequest(targets=[101], hold=pb.HOLD_FORCED))
            await until(lambda: one.targets._heard.is_out_of_service(TargetId(101)))
        await until(lambda: one.targets.get(101).is_out_of_service)
        await one.stop()
        await two.stop()


async def test_a_routing_is_heard_of_while_stores_are_opened_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged tables are mostly found there, one store after the other."""
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        await one.stop()
        at_once = Targets.open

        async def slowly(targets: Targets, routing: Routing, *, is_own_disk: bool = False) -> None:
            await bench.manager.hold_targets(pb.HoldTargetsRequest(targets=[101], hold=pb.HOLD_FORCED))
            await until(lambda: targets._heard.is_out_of_service(TargetId(101)))
            await at_once(targets, routing, is_own_disk=is_own_disk)

        monkeypatch.setattr(Targets, "open", slowly)
        one = await bench.node(1)
        assert one.targets.get(101).is_out_of_service
        await one.stop()
        await two.stop()


async def test_a_routing_that_comes_just_before_the_node_is_registered_is_the_one_that_it_begins_with(
    tmp_path: Path,
) -> None:
    """The start went back to the one before: it forgot a hold, and the chain versions of the newer one were not stored
    when the node acted in them."""
    async with Bench(tmp_path) as bench:
        one, two = await bench.node(1), await bench.node(2)
        await until(lambda: bench.states() == {1: PublicState.SERVING, 2: PublicState.SERVING})
        await one.stop()
        one = bench.unstarted(1)
        register, keep_chains, serve = one._registration.start, one.targets.keep_chains, one.storage.start
        kept, acted_in = list[Routing](), list[Routing]()

        async def register_while_a_store_is_opened(address: str) -> None:
            await register(address)
            await one._adopting.acquire()
            await bench.manager.hold_targets(pb.HoldTargetsRequest(targets=[101], hold=pb.HOLD_FORCED))
            await until(lambda: one.targets._heard.is_out_of_service(TargetId(101)))

        async def end_opening() -> None:
            await until(lambda: one._cluster.keep == one._adopt)
            one._adopting.release()

        async def keep(routing: Routing) -> None:
            assert one.targets._heard.is_out_of_service(TargetId(101))
            await keep_chains(routing)
            kept.append(routing)

        def begin(server: Server) -> None:
            acted_in.append(one._cluster.routing)
            serve(server)

        one._registration.start = register_while_a_store_is_opened  # type: ignore[method-assign]
        one.targets.keep_chains, one.storage.start = keep, begin  # type: ignore[method-assign]
        await asyncio.gather(one.start(), end_opening())
        assert acted_in[0] is kept[0] and one.targets.get(101).is_out_of_service
        await one.stop()
        await two.stop()
