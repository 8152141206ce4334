"""Stores of targets that the routing does not name."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.health import unknown_stores
from threefs_storage.targets import Targets

from tests.cluster.services.threefs_storage.test_unopened_stores import BUSY, LASTSRV, refusing, routing_of
from tests.harness.chain_harness import CHAIN, OFFLINE, SERVING, TestChain, chain_of, target_of
from threefs.cluster import kept_routing
from threefs.cluster.kept_routing import KeptRouting
from threefs.env.disk import RealDisk
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb


async def test_stores_that_the_routing_does_not_name_are_read_and_left_alone(tmp_path: Path) -> None:
    """A restored manager may not know of them."""
    async with chain_of(tmp_path, 2) as chain:
        whole = chain.routing()
        targets = chain[1].targets
        await targets.keep_chains(whole)
        directory = targets._directory
        await chain[1].stop()
        disk = RealDisk(threads=1)
        lacking = dataclasses.replace(
            whole, targets={t: target for t, target in whole.targets.items() if t != target_of(1)}
        )
        found = Targets(NodeId(1), directory, disk, EngineSettings())
        await found.open(lacking)
        await found.unnamed.find([target_of(1), TargetId(999)], lacking)
        (store,) = found.unnamed
        assert store.target_id == target_of(1) and store.store_id and store.kept.chain.version == 1
        assert [t.target_id for t in store.kept.targets] == [target_of(1), target_of(2)] and not found.by_id
        await found.unnamed.find([target_of(1)], whole)
        assert len(list(found.unnamed)) == 1, "it is named"
        await found.close()
        await disk.close()
        await chain[1].restart()


async def test_stores_that_the_routing_does_not_name_are_read_for_the_registration(tmp_path: Path) -> None:
    """I2: the manager was restored from a backup of before target 201 was made."""
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 3).routing()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(routing)
    await targets.keep_chains(routing)
    await targets.close()
    older = dataclasses.replace(routing, targets={t: found for t, found in routing.targets.items() if t != 201})
    again = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await again.open(older)
    await again.unnamed.find([TargetId(201), TargetId(202)], older)
    (store,) = again.unnamed
    assert (store.target_id, store.kept.chain.chain_id, len(store.kept.targets)) == (201, CHAIN, 3)
    await disk.close()


@pytest.mark.parametrize("damage", ["table", "kept version"])
async def test_a_store_that_the_routing_does_not_name_and_that_cannot_be_read_is_reported(
    damage: str, tmp_path: Path
) -> None:
    """A restored manager would go on without the newest version of its chain, which it may keep."""
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 3).routing()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(routing)
    if damage == "kept version":
        await targets.get(201).engine.keep_note("chain", b"damaged")
    await targets.close()
    if damage == "table":
        (tmp_path / "target-201" / "records" / "CURRENT").write_bytes(b"damaged")
    older = dataclasses.replace(routing, targets={t: found for t, found in routing.targets.items() if t != 201})
    again = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await again.unnamed.find([TargetId(201)], older)
    assert list(again.unnamed) == [pb.Store(target_id=201)]
    await disk.close()


async def test_a_closed_store_is_told_that_its_chain_goes_on_without_it(tmp_path: Path) -> None:
    """Two managers that are restored one after the other hear the same of it, whether its process ran or not."""
    disk, chain = RealDisk(threads=1), TestChain(tmp_path / "chain", 2)
    before, there = (Targets(NodeId(2), tmp_path, disk, EngineSettings()) for _ in range(2))
    await before.open(chain.routing())
    await before.keep_chains(chain.routing())
    await before.close()

    def without() -> Routing:
        routing = chain.routing()
        return dataclasses.replace(routing, targets={TargetId(101): routing.targets[TargetId(101)]})

    await there.unnamed.find([TargetId(101), TargetId(201), TargetId(901)], without())
    await there.unnamed.tell(without())
    assert there.unnamed.untold == [201], "that routing is not newer: the manager asks still"
    chain.version, chain.members = 7, [(1, SERVING)]
    await there.unnamed.tell(chain.routing())
    assert there.unnamed.untold == [201], "that routing names it"
    await there.unnamed.tell(without())
    await there.unnamed.tell(without())
    assert there.unnamed.untold == [] and next(iter(there.unnamed)).kept.chain.version == 7
    there.unnamed.discard(TargetId(201))
    await there.open(chain.routing())
    assert there.get(201).was_unknown and there.get(201).state is None
    await there.close()
    await disk.close()


def without_target_101() -> Routing:
    """A later routing, in which the chain of target 101 goes on with its other member."""
    named = routing_of(LASTSRV, OFFLINE, version=2)
    chain = named.chains[ChainId(1)]
    others = tuple(member for member in chain.members if member.target_id != 101)
    return dataclasses.replace(
        named,
        targets={target_id: target for target_id, target in named.targets.items() if target_id != 101},
        chains={**named.chains, chain.chain_id: dataclasses.replace(chain, members=others)},
    )


async def test_one_is_closed_also_if_the_telling_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock would keep every later opening out."""

    async def cut_short(engine: ChunkEngine) -> None:
        raise asyncio.CancelledError

    await closed_stores(tmp_path)
    newer = without_target_101()
    async with refusing(tmp_path, {}) as (targets, _):
        await targets.unnamed.find([TargetId(101)], newer)
        with monkeypatch.context() as patched:
            patched.setattr(unknown_stores, "mark", cut_short)
            with pytest.raises(asyncio.CancelledError):
                await targets.unnamed.tell(newer)
        assert targets.unnamed.untold == [101]
        await targets.unnamed.tell(newer)
        assert targets.unnamed.untold == []


async def test_one_whose_telling_fails_slowly_is_tried_seldom(tmp_path: Path) -> None:
    """Each new routing opened it, and the targets that are open waited for that."""
    await closed_stores(tmp_path)
    newer = without_target_101()
    async with refusing(tmp_path, {}) as (targets, refusals):
        await targets.unnamed.find([TargetId(101)], newer)
        refusals.errors[TargetId(101)] = Unavailable("input/output error")
        refusals.takes_s = 3.0
        await targets.unnamed.tell(newer)
        tries = len(refusals.tries)
        await targets.unnamed.tell(newer)
        assert len(refusals.tries) == tries and targets.unnamed.untold == [101]
        refusals.errors.clear()
        refusals.clock.advance(25.0)
        await targets.unnamed.tell(newer)
        assert targets.unnamed.untold == []


async def test_one_that_was_moved_away_is_not_made_anew_to_be_told(tmp_path: Path) -> None:
    await closed_stores(tmp_path)
    async with refusing(tmp_path, {}) as (targets, _):
        await targets.unnamed.find([TargetId(101)], without_target_101())
        (tmp_path / "target-101").rename(tmp_path / "elsewhere")
        await targets.unnamed.tell(without_target_101())
        assert not (tmp_path / "target-101").exists()


async def closed_stores(directory: Path) -> None:
    """Those of targets 101 and 102, which keep versions of their chains."""
    async with refusing(directory, {}) as (targets, _):
        routing = routing_of(LASTSRV, OFFLINE)
        new = {target_id: dataclasses.replace(target, store_id=0) for target_id, target in routing.targets.items()}
        await targets.open(routing)
        await targets.keep_chains(dataclasses.replace(routing, targets=new))
        await targets.close()


KNOWN = routing_of(LASTSRV, OFFLINE, targets=(101,))  # what a restored manager knows


@pytest.mark.parametrize("error", [NoSpace("full"), Unavailable("is in use by another process"), DiskFailed("gone")])
@pytest.mark.parametrize("set_aside", [False, True])
async def test_one_that_cannot_be_read_is_read_later(error: ThreefsError, set_aside: bool, tmp_path: Path) -> None:
    """A restored manager waited for it for ever. `set_aside`: the routing named it when the process started."""
    await closed_stores(tmp_path)
    async with refusing(tmp_path, {BUSY: error}) as (targets, refusals):
        await targets.open(routing_of(LASTSRV, OFFLINE) if set_aside else KNOWN)
        targets.set_unopened_aside(KNOWN)
        await targets.unnamed.find([] if set_aside else [BUSY], KNOWN)
        assert list(targets.unnamed) == [pb.Store(target_id=BUSY)]
        await targets.unnamed.read_again(KNOWN)
        assert list(targets.unnamed) == [pb.Store(target_id=BUSY)] and refusals.tries.count(BUSY) == 2
        refusals.errors.clear()
        await targets.unnamed.read_again(routing_of(LASTSRV, OFFLINE))
        assert refusals.tries.count(BUSY) == 2, "it is named again, and opened to serve"
        await targets.unnamed.read_again(KNOWN)
        (store,) = targets.unnamed
        assert store.store_id and store.kept.chain.chain_id == 2 and list(targets.by_id) == [101]
        await targets.unnamed.read_again(KNOWN)
        assert refusals.tries.count(BUSY) == 3
        await targets.close()


async def test_one_whose_reading_fails_slowly_is_tried_seldom(tmp_path: Path) -> None:
    """The targets that are open wait for it before they act in a new routing."""
    await closed_stores(tmp_path)
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        await targets.open(KNOWN)
        refusals.takes_s = 3.0
        await targets.unnamed.find([BUSY], KNOWN)
        refusals.errors.clear()
        await targets.unnamed.read_again(KNOWN)
        assert refusals.tries.count(BUSY) == 1
        refusals.clock.advance(25.0)
        await targets.unnamed.read_again(KNOWN)
        assert [bool(store.store_id) for store in targets.unnamed] == [True]
        await targets.close()


@pytest.mark.parametrize("gone", ["nothing", "store", "disk"])
async def test_one_that_is_damaged_is_not_tried_again_and_one_that_is_gone_is_not_waited_for(
    gone: str, tmp_path: Path
) -> None:
    """An administrator who gives it up moves it away: no restored manager waits for it any more. A disk that is away
    for a moment, with all that it has, gives up nothing."""
    await closed_stores(tmp_path)
    async with refusing(tmp_path, {BUSY: Corrupt("the table is damaged")}) as (targets, refusals):
        await targets.open(KNOWN)
        await targets.unnamed.find([BUSY], KNOWN)
        refusals.errors.clear()
        if gone != "disk":
            (tmp_path / kept_routing.NAME).touch()
        if gone != "nothing":
            (tmp_path / "target-102").rename(tmp_path / "elsewhere")
        await targets.unnamed.read_again(KNOWN)
        assert list(targets.unnamed) == ([] if gone == "store" else [pb.Store(target_id=BUSY)])
        assert BUSY in targets.held and refusals.tries.count(BUSY) == 1
        await targets.close()


async def test_one_that_is_moved_away_to_be_repaired_is_read_when_it_is_back(tmp_path: Path) -> None:
    """The copy of the routing forgot it, so no process looked at it again, and it was called a stray to be removed."""
    await closed_stores(tmp_path)
    place, elsewhere = tmp_path / "target-102", tmp_path / "elsewhere"
    KeptRouting(tmp_path, 1).keep(routing_of(LASTSRV, OFFLINE))
    for starts in (1, 2):
        async with refusing(tmp_path, {BUSY: Corrupt("the table is damaged")} if starts == 1 else {}) as (targets, _):
            kept = KeptRouting(tmp_path, 1)
            await targets.open(KNOWN)
            await targets.unnamed.find(kept.own_targets(), KNOWN)
            kept.keep(KNOWN, targets.held)
            if starts == 1:
                place.rename(elsewhere)
            await targets.unnamed.read_again(KNOWN)
            assert not list(targets.unnamed), "no manager waits for it"
            kept.keep(dataclasses.replace(KNOWN, version=1 + starts), targets.held)
            await targets.close()
    elsewhere.rename(place)
    async with refusing(tmp_path, {}) as (targets, _):
        await targets.unnamed.find(KeptRouting(tmp_path, 1).own_targets(), KNOWN)
        assert [(store.target_id, bool(store.store_id)) for store in targets.unnamed] == [(BUSY, True)]


async def test_a_quarantined_one_counts_as_a_stray(tmp_path: Path) -> None:
    """It is not expected to come back, and may fill the disk."""
    (tmp_path / "target-102.damaged").mkdir()
    async with refusing(tmp_path, {}) as (targets, _):
        await targets.unnamed.find([BUSY], KNOWN)
        await targets.strays.look(lambda: KNOWN)
        report = targets.strays.report()
        assert report is not None and list(report.targets) == [BUSY]


async def test_one_that_is_put_back_while_the_process_runs_is_no_stray(tmp_path: Path) -> None:
    await closed_stores(tmp_path)
    (tmp_path / kept_routing.NAME).touch()
    async with refusing(tmp_path, {BUSY: Corrupt("the table is damaged")}) as (targets, _):
        await targets.unnamed.find([BUSY], KNOWN)
        (tmp_path / "target-102").rename(tmp_path / "elsewhere")
        await targets.unnamed.read_again(KNOWN)
        (tmp_path / "elsewhere").rename(tmp_path / "target-102")
        await targets.strays.look(lambda: KNOWN)
        assert targets.strays.report() is None


@pytest.mark.parametrize("named_at_start", [False, True])
async def test_one_that_cannot_be_read_is_held(named_at_start: bool, tmp_path: Path) -> None:
    """The copy of the routing goes on naming it: it knows, perhaps alone, what was acknowledged last."""
    await closed_stores(tmp_path)
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        await targets.open(routing_of(LASTSRV, OFFLINE) if named_at_start else KNOWN)
        await targets.unnamed.find([] if named_at_start else [BUSY], KNOWN)
        assert sorted(targets.held) == [101, 102]
        targets.set_unopened_aside(KNOWN)
        assert sorted(targets.held) == [101, 102]
        refusals.errors.clear()
        await targets.unnamed.read_again(KNOWN)
        await targets.unnamed.tell(routing_of(LASTSRV, OFFLINE, targets=(101,), version=2))
        assert sorted(targets.held) == [101, 102], "that routing has no chain of it"
        await targets.close()
