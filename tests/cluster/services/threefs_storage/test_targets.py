"""The targets of a process."""

import asyncio
import dataclasses
import math
from pathlib import Path

import pytest
from threefs_storage.chain import admission
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.health import unknown_stores
from threefs_storage.targets import Targets

from tests.harness.chain_harness import CHAIN, CHUNK, OFFLINE, SERVING, SYNCING, TestChain, chain_of, target_of, until
from tests.harness.chunk_engine import put
from tests.harness.clocks import SteppedClock
from threefs.env.disk import RealDisk
from threefs.errors import DiskFailed, NotServing, ThreefsError, Unavailable
from threefs.ids import NodeId, TableId
from threefs.kv.table import Table
from threefs.routing import Chain, ChainMember, Hold, LocalState
from threefs.wire import manager_pb2 as pb


async def test_a_node_opens_its_own_targets_only(tmp_path: Path) -> None:
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 3).routing()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(routing)
    assert [target.target_id for target in targets] == [target_of(2)]
    assert targets.get(201).chain == routing.chains[CHAIN]
    with pytest.raises(NotServing, match="node 2 has no target 101"):
        targets.get(101)
    await targets.close()
    await disk.close()


async def test_settings_that_come_while_a_store_is_opened_are_its_settings(tmp_path: Path) -> None:
    async def open_table(directory: Path) -> Table:
        targets.adopt(EngineSettings(full_ratio=0.5))
        return await Table.open(directory)

    disk = RealDisk(threads=1)
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings(), open_table=open_table)
    await targets.open(TestChain(tmp_path, 3).routing())
    assert targets.get(201).engine._files.full_ratio == 0.5
    await targets.close()
    await disk.close()


async def test_only_newer_chain_versions_are_learned(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        old = chain.routing()
        target = chain[1].target
        assert chain[1].targets.apply_routing(old) == []
        new = chain.change((2, SERVING), (1, OFFLINE), learned_by=[2])
        assert chain[1].targets.apply_routing(new) == [target]
        assert (target.chain.version, target.serving) == (2, False)
        assert chain[1].targets.apply_routing(old) == [] and target.chain.version == 2, "I5: chain versions only rise"


async def test_the_report_says_whether_the_disk_is_well(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        await chain.write(b"x")
        (report,) = chain[1].targets.reports()
        assert (report.target_id, report.chain_version, report.chunks) == (101, 1, 1)
        assert report.local_state == LocalState.UPTODATE.value and report.capacity_bytes > report.used_bytes > 0
        chain[1].target.engine.failure = DiskFailed("gone")
        (report,) = chain[1].targets.reports()
        assert report.local_state == LocalState.OFFLINE.value
        chain[1].target.engine.failure = None


async def test_the_report_says_that_a_disk_is_gone(tmp_path: Path) -> None:
    """Without a report there would be no heartbeats at all, as long as the process lives."""
    async with chain_of(tmp_path, 2) as chain:
        target, directory = chain[2].target, chain[2].directory
        directory.rename(tmp_path / "gone")
        (report,) = chain[2].targets.reports()
        assert report.local_state == LocalState.OFFLINE.value and not target.has_lease
        assert "no such file" in report.failure.lower() and not report.read_only
        await asyncio.sleep(0.7)
        assert not directory.exists(), "nothing takes the place of what is on the disk"
        (tmp_path / "gone").rename(directory)


async def test_a_grant_that_was_asked_for_before_leases_were_given_up_is_void(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        targets, target = chain[1].targets, chain[1].target
        late = targets.open_grant()
        targets.yield_leases()
        late([target.target_id], 1e12)
        with pytest.raises(NotServing, match="no lease"):
            admission.check(target, target.chain.version)
        targets.open_grant()([target.target_id], 1e12)
        admission.check(target, target.chain.version)


async def test_a_target_says_that_its_lease_has_lapsed_when_its_chain_may_have_gone_on_without_it(
    tmp_path: Path,
) -> None:
    clock = SteppedClock()
    targets = Targets(NodeId(2), tmp_path, RealDisk(threads=1), EngineSettings(), clock=clock)
    routing = dataclasses.replace(TestChain(tmp_path, 2).routing(), lease_ms=10_000)
    await targets.open(routing)
    targets.apply_routing(routing)
    [target] = targets

    def lapsed() -> bool:
        [report] = targets.reports()
        return report.lease_lapsed

    def grant() -> None:
        targets.open_grant()([201], clock.monotonic() + 5)

    assert lapsed(), "it has never had one"
    grant()
    targets.yield_leases()
    clock.advance(7.4)
    assert not lapsed() and not target.has_lease
    late = targets.open_grant()
    clock.advance(0.2)
    late([201], clock.monotonic() + 4.8)
    assert lapsed() and not target.has_lease, "the manager was told that it had not lapsed"
    grant()
    assert target.has_lease and not lapsed()
    targets.end_leases()
    assert lapsed()
    grant()
    targets.leave()
    targets.readmit(target)
    assert lapsed()
    await targets.close()


async def test_a_store_that_cannot_be_closed_keeps_no_other_one_open(tmp_path: Path) -> None:
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 2).routing()
    for name in "12":
        (tmp_path / name).mkdir()
    nodes = [(1, tmp_path / "1"), (2, tmp_path / "2"), (2, tmp_path / "2")]
    targets, others, again = (Targets(NodeId(n), directory, disk, EngineSettings()) for n, directory in nodes)
    await targets.open(routing)
    await others.open(routing)
    targets.by_id.update(others.by_id)
    engine = targets.get(target_of(1)).engine
    close = engine.close

    async def fails() -> None:
        raise Unavailable("input/output error (sync)")

    engine.close = fails  # type: ignore[method-assign]
    await targets.close()
    await again.open(routing)  # its store is locked while it is open
    await again.close()
    await close()
    await disk.close()


async def test_a_target_that_a_routing_does_not_name_is_kept(tmp_path: Path) -> None:
    """Only a chain without it says that it was taken out: a manager that was restored knows of fewer targets."""
    async with chain_of(tmp_path, 2) as chain:
        old = chain.routing()
        known = {number: target for number, target in old.targets.items() if number != 201}
        chain[2].targets.apply_routing(dataclasses.replace(old, version=old.version + 1, targets=known))
        assert chain[2].target.state is SERVING


async def test_a_target_that_gives_way_holds_no_lease_and_one_that_is_needed_again_does(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        targets, target = chain[2].targets, chain[2].target
        old = chain.routing()
        known = old.chains[CHAIN]
        leaving = tuple(dataclasses.replace(m, leaving=m.target_id == 201) for m in known.members)
        granted = targets.open_grant()
        new = Chain(CHAIN, known.version + 1, leaving)
        targets.apply_routing(dataclasses.replace(old, version=old.version + 1, chains={CHAIN: new}))
        granted([201], math.inf)
        targets.open_grant()([201], math.inf)
        assert target.gives_way and not target.has_lease and target.local_state is LocalState.OFFLINE
        alone = Chain(CHAIN, new.version + 1, (dataclasses.replace(leaving[1], state=SERVING),))
        targets.apply_routing(dataclasses.replace(old, version=old.version + 2, chains={CHAIN: alone}))
        targets.open_grant()([201], math.inf)
        assert not target.gives_way and target.has_lease and target.local_state is LocalState.UPTODATE


async def test_a_target_that_is_held_gives_its_lease_up_unless_a_write_needs_it(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        targets, target = chain[1].targets, chain[1].target
        old = chain.routing()
        held = {**old.targets, target.target_id: dataclasses.replace(old.targets[target.target_id], hold=Hold.OFFLINE)}
        needed = dataclasses.replace(old, targets=held, min_replicas={TableId(1): 2})
        granted = targets.open_grant()
        targets.apply_routing(needed)
        granted([101], math.inf)
        assert target.has_lease and target.local_state is LocalState.UPTODATE
        granted = targets.open_grant()
        targets.apply_routing(dataclasses.replace(old, targets=held))
        granted([101], math.inf)
        targets.open_grant()([101], math.inf)
        assert not target.has_lease and target.local_state is LocalState.OFFLINE, (
            "R9: it has given it up before it says so"
        )
        out = Chain(
            CHAIN,
            old.chains[CHAIN].version + 1,
            (ChainMember(target_of(2), SERVING), ChainMember(target_of(1), OFFLINE)),
        )
        targets.apply_routing(dataclasses.replace(old, targets=held, chains={CHAIN: out}))
        assert target.local_state is LocalState.ONLINE and not target.gives_way


async def test_a_target_that_was_taken_out_of_its_chain_is_deleted(tmp_path: Path) -> None:
    disk = RealDisk(threads=1)
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(TestChain(tmp_path, 3).routing())
    assert (tmp_path / "target-201").is_dir()
    (tmp_path / "target-201.damaged").mkdir()  # of an earlier store, and nobody would use its room again
    await targets.delete(targets.get(201))
    assert not list(tmp_path.iterdir())
    assert not (tmp_path / "target-201").exists() and not targets.by_id and not targets.reports()
    await targets.close()
    await disk.close()


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_deletion_that_a_crash_cuts_short_is_done_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """A part of the store could not be opened, and the process did not start any more. And if the manager had
    forgotten the target by then, that part kept its room for ever."""
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 3).routing()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(routing)
    await put(targets.get(201).engine, CHUNK, bytes(100_000))

    def cut_short(path: Path) -> None:
        for file in path.glob("records/MANIFEST*"):  # the files of a directory go in no order
            file.unlink()
        raise RuntimeError("the process ends here")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", cut_short)
        with pytest.raises(RuntimeError, match="ends here"):
            await targets.delete(targets.get(201))
    assert list(tmp_path.rglob("*.*"))
    again = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    if forgotten:
        routing = dataclasses.replace(
            routing, targets={t: target for t, target in routing.targets.items() if target.node_id != 2}
        )
    await again.open(routing)  # names it until the node does not report it any more
    if not forgotten:
        await again.delete(again.get(201))
    assert not list(tmp_path.iterdir())
    await disk.close()


async def test_a_deletion_that_the_disk_refuses_is_tried_again(tmp_path: Path) -> None:
    disk = RealDisk(threads=1)
    clock = SteppedClock()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings(), clock=clock)
    await targets.open(TestChain(tmp_path, 3).routing())
    remove, failures = disk.remove_directory, 2

    async def refuse(path: Path) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise DiskFailed("input/output error")
        await remove(path)

    disk.remove_directory = refuse  # type: ignore[method-assign]
    await targets.delete(targets.get(201))
    assert not (tmp_path / "target-201").exists() and not targets.reports()
    await disk.close()


def at_any_time(reports: list[pb.TargetReport]) -> list[pb.TargetReport]:
    """Without what changes while nothing happens."""
    for report in reports:
        report.ClearField("unscrubbed_ms")
        report.ClearField("free_bytes")
    return reports


@pytest.mark.parametrize("named", [True, False])
async def test_only_a_target_that_the_routing_still_names_is_deleted(tmp_path: Path, named: bool) -> None:
    """A manager that was restored from a backup of before it was made has a newer version of the chain without it."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"the only copy")
        targets, target = chain[2].targets, chain[2].target
        directory = targets._directory / f"target-{target.target_id}"
        chain.version += 1
        chain.members = [(1, SERVING)]
        known = {number: one for number, one in chain.routing().targets.items() if named or number != target.target_id}
        chain[2].cluster.learn(dataclasses.replace(chain.routing(), targets=known))
        await until(lambda: target.target_id not in chain[2].storage._removing)
        assert not any(report.target_id == target.target_id for report in targets.reports())
        assert directory.exists() is not named
        assert [store.target_id for store in targets.unnamed] == ([] if named else [target.target_id])


async def test_a_target_that_is_a_member_again_before_it_is_closed_stays(tmp_path: Path) -> None:
    """The manager was restored once more, from a backup that knows the target."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"the only copy")
        targets, target = chain[2].targets, chain[2].target
        async with target.locks.hold(CHUNK, 1.0):
            chain.version += 1
            chain.members = [(1, SERVING)]
            other = chain.routing().targets[chain[1].target.target_id]
            chain[2].cluster.learn(dataclasses.replace(chain.routing(), targets={other.target_id: other}))
            await until(lambda: target.target_id in chain[2].storage._removing)
            chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: target.target_id not in chain[2].storage._removing)
        assert targets.get(target.target_id) is target and not list(targets.unnamed)
        chain.change((1, OFFLINE), (2, SERVING))
        target.leased_until = float("inf")
        assert await chain.read(2) == (1, b"the only copy")


async def test_a_target_that_a_manager_did_not_know_is_kept_though_the_next_one_has_moved_it_away(
    tmp_path: Path,
) -> None:
    """Two backups are loaded one after the other while its store waits for the end of a change."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"the only copy")
        targets, target = chain[2].targets, chain[2].target
        async with target.locks.hold(CHUNK, 1.0):
            chain.version += 1
            chain.members = [(1, SERVING)]
            other = chain.routing().targets[chain[1].target.target_id]
            chain[2].cluster.learn(dataclasses.replace(chain.routing(), targets={other.target_id: other}))
            await until(lambda: target.target_id in chain[2].storage._removing)
            chain.change((1, SERVING))
            await until(lambda: unknown_stores.is_marked(target.engine))  # also if the process ends now
        await until(lambda: target.target_id not in chain[2].storage._removing)
        assert (targets._directory / f"target-{target.target_id}").exists()
        assert [store.target_id for store in targets.unnamed] == [target.target_id]


async def test_nothing_looks_into_a_target_that_is_being_deleted(tmp_path: Path) -> None:
    """Its store closes in a worker thread while routing comes in and heartbeats are sent."""
    disk = RealDisk(threads=1)
    routing = TestChain(tmp_path, 3).routing()
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(routing)
    target = targets.get(201)
    told = targets.stores(), at_any_time(targets.reports())
    closing, may_close = asyncio.Event(), asyncio.Event()
    close = target.engine.close

    async def slow_close() -> None:
        await close()
        closing.set()
        await may_close.wait()

    target.engine.close = slow_close  # type: ignore[method-assign]
    deleting = asyncio.create_task(targets.delete(target))
    await closing.wait()
    with pytest.raises(ThreefsError):
        target.engine.note("chain")  # a look into the closed store would fail
    assert (targets.stores(), at_any_time(targets.reports())) == told, "the manager keeps its record"
    await targets.keep_chains(routing)
    assert targets.apply_routing(routing) == [] and list(targets) == []
    await targets.open_added(routing)
    assert not targets.by_id, "it is not opened again in the directory that goes"
    with pytest.raises(NotServing):
        targets.get(201)
    may_close.set()
    await deleting
    assert not targets.stores() and not targets.reports()
    await disk.close()


async def test_a_store_that_a_manager_did_not_know_outlives_the_next_one(tmp_path: Path) -> None:
    """The manager was restored from a backup of before the target was made, then from one of after that. The chain has
    gone on without it meanwhile, and no move has taken it out."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"the only copy")
        targets, target = chain[2].targets, chain[2].target
        directory = targets._directory / f"target-{target.target_id}"

        async def learn_without(*, named: bool) -> None:
            chain.version += 1
            chain.members = [(1, SERVING)]
            routing = chain.routing()
            known = {number: one for number, one in routing.targets.items() if named or number != target.target_id}
            routing = dataclasses.replace(routing, targets=known)
            await chain[2].targets.open_added(routing)
            chain[2].cluster.learn(routing)
            await until(lambda: target.target_id not in chain[2].storage._removing)

        await learn_without(named=False)
        await learn_without(named=True)
        assert directory.exists() and not targets.by_id, "it is not opened while its chain goes on without it"
        chain[2].targets.unnamed.discard(target.target_id)  # as by the next start
        await learn_without(named=True)
        assert directory.exists() and not targets.by_id
        chain.members = [(1, SERVING), (2, SYNCING)]
        chain.version += 1
        await targets.open_added(chain.routing())
        chain[2].cluster.learn(chain.routing())
        assert not list(targets.unnamed)
        targets.open_grant()([target.target_id], math.inf)
        await learn_without(named=True)
        assert not directory.exists(), "it has been in use since, and then a move has taken it out"
