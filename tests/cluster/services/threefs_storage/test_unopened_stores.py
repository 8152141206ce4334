"""A store that cannot be opened keeps only its own target from serving."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.targets import Targets

from tests.harness.chain_harness import OFFLINE, SERVING
from tests.harness.clocks import SteppedClock
from threefs.env.disk import RealDisk
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv.table import Table
from threefs.routing import Chain, ChainMember, LocalState, PublicState, Routing, Target

LASTSRV = PublicState.LASTSRV
DAMAGED, BUSY = TargetId(101), TargetId(102)


def routing_of(
    own: PublicState, other: PublicState, *, targets: tuple[int, ...] = (101, 102), version: int = 1
) -> Routing:
    """Chains of a target of node 1 and one of node 2."""
    named: dict[TargetId, Target] = {}
    chains: dict[ChainId, Chain] = {}
    for mine in map(TargetId, targets):
        chain = ChainId(mine - 100)
        named |= {t: Target(t, NodeId(t // 100), chain, store_id=7) for t in (mine, TargetId(mine + 100))}
        members = sorted(
            [ChainMember(mine, own), ChainMember(TargetId(mine + 100), other)], key=lambda m: m.state.value
        )
        chains[chain] = Chain(chain, version, tuple(members))
    return Routing(version, "c", {}, named, chains, {})


class Refusals:
    """Opens tables, except for those of targets that have an error here."""

    def __init__(self, errors: dict[TargetId, ThreefsError]) -> None:
        self.errors = errors
        self.tries: list[int] = []
        self.clock = SteppedClock()
        self.takes_s = 0.0

    async def open_table(self, directory: Path) -> Table:
        target = TargetId(int(directory.parent.name.removeprefix("target-")))
        self.tries.append(target)
        if target in self.errors:
            self.clock.advance(self.takes_s)
            raise self.errors[target]
        return await Table.open(directory)


@asynccontextmanager
async def refusing(directory: Path, errors: dict[TargetId, ThreefsError]) -> AsyncIterator[tuple[Targets, Refusals]]:
    disk, refusals = RealDisk(threads=1), Refusals(errors)
    settings, clock = EngineSettings(), refusals.clock
    yield Targets(NodeId(1), directory, disk, settings, open_table=refusals.open_table, clock=clock), refusals
    await disk.close()


@pytest.mark.parametrize(
    "error", [Corrupt("the table is damaged"), NoSpace("full"), Unavailable("input/output error"), DiskFailed("gone")]
)
async def test_the_other_targets_of_the_disk_are_opened(error: ThreefsError, tmp_path: Path) -> None:
    """The process ended at each start, and all targets of its disk were gone, also those whose chains had no other."""
    async with refusing(tmp_path, {DAMAGED: error}) as (targets, _):
        await targets.open(routing_of(LASTSRV, OFFLINE))
        assert list(targets.by_id) == [102]
        report = next(report for report in targets.reports() if report.target_id == DAMAGED)
        assert report.local_state == LocalState.OFFLINE.value and report.capacity_bytes and report.free_bytes
        assert report.failure == f"its store cannot be opened: {error.message}"
        assert (report.store_id, report.read_only) == (0, isinstance(error, NoSpace))
        assert [(s.target_id, s.store_id) for s in targets.stores() if s.target_id == DAMAGED] == [(101, 7)], (
            "the manager waits until it is put out, and keeps its record"
        )
        assert len({report.disk for report in targets.reports()}) == 1
        await targets.close()


async def test_one_that_was_not_damaged_is_opened_later(tmp_path: Path) -> None:
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        routing = routing_of(LASTSRV, OFFLINE)
        await targets.open(routing)
        assert not await targets.open_added(routing, members_only=True)
        refusals.errors.clear()
        assert await targets.open_added(routing, members_only=True)
        assert [(r.target_id, r.failure) for r in targets.reports()] == [(101, ""), (102, "")]
        assert len(targets.stores()) == 2
        await targets.close()


async def test_one_whose_opening_fails_slowly_is_tried_seldom(tmp_path: Path) -> None:
    """The others wait for it before they act in a new routing: they lost their leases each time that one came."""
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        routing = routing_of(LASTSRV, OFFLINE)
        refusals.takes_s = 3.0
        await targets.open(routing)
        tries = len(refusals.tries)
        for _ in range(4):
            assert not await targets.open_added(routing)
            refusals.clock.advance(5.0)
        assert len(refusals.tries) == tries
        refusals.clock.advance(5.0)
        refusals.errors.clear()
        assert await targets.open_added(routing)
        await targets.close()


@pytest.mark.parametrize(("taken_s", "rest_s"), [(60.0, 300.0), (900.0, 900.0), (36000.0, 3600.0)])
async def test_one_whose_opening_hung_rests_as_long_as_that_and_no_more_than_an_hour(
    taken_s: float, rest_s: float, tmp_path: Path
) -> None:
    """The disk may work again. If it does not, the others have half of the time, and more after short attempts."""
    async with refusing(tmp_path, {BUSY: DiskFailed("input/output error")}) as (targets, refusals):
        routing = routing_of(LASTSRV, OFFLINE)
        refusals.takes_s = taken_s
        await targets.open(routing)
        refusals.errors.clear()
        refusals.clock.advance(rest_s - 1.0)
        assert not await targets.open_added(routing)
        refusals.clock.advance(1.0)
        assert await targets.open_added(routing)
        await targets.close()


async def test_several_that_fail_slowly_rest_together_and_have_their_turns(tmp_path: Path) -> None:
    """Each rested by itself, so that the attempts of ten stores on a disk that hangs took all of the time."""
    error = DiskFailed("input/output error")
    async with refusing(tmp_path, {DAMAGED: error, BUSY: error}) as (targets, refusals):
        routing = routing_of(LASTSRV, OFFLINE, targets=(101, 102, 103))
        refusals.takes_s = 60.0
        await targets.open(routing)
        assert refusals.tries == [101, 102, 103] and list(targets.by_id) == [103]
        for _ in range(4):
            refusals.clock.advance(299.0)
            assert not await targets.open_added(routing)
            refusals.clock.advance(1.0)
            assert not await targets.open_added(routing)
        assert refusals.tries[3:] == [101, 102, 101, 102], "one in 300 s"
        refusals.errors.clear()
        refusals.clock.advance(300.0)
        assert await targets.open_added(routing) and len(targets.by_id) == 3
        await targets.close()


async def test_a_damaged_one_is_replaced_when_another_member_has_what_it_had(tmp_path: Path) -> None:
    """It is not read again and again before: that takes the time of the targets that serve."""
    async with refusing(tmp_path, {DAMAGED: Corrupt("the table is damaged")}) as (targets, refusals):
        await targets.open(routing_of(LASTSRV, OFFLINE))
        assert not await targets.open_added(routing_of(LASTSRV, OFFLINE, version=2))
        assert refusals.tries == [101, 102] and not (tmp_path / "target-101.damaged").exists()
        assert not await targets.open_added(routing_of(OFFLINE, SERVING, version=3)), "the empty one fails as well"
        assert (tmp_path / "target-101.damaged").is_dir()
        refusals.errors.clear()
        assert await targets.open_added(routing_of(OFFLINE, SERVING, version=3), members_only=True)
        assert sorted(targets.by_id) == [101, 102] and not any(report.failure for report in targets.reports())
        await targets.close()


@pytest.mark.parametrize("others_here", [(), (102,)])
@pytest.mark.parametrize("other", [SERVING, LASTSRV])
async def test_a_damaged_one_that_fills_its_disk_makes_room(
    other: PublicState, others_here: tuple[int, ...], tmp_path: Path
) -> None:
    """The empty one had no room, and what is in quarantine was given up only for targets that are open. It stays where
    nobody serves: it may have what no other one has. Targets that serve do not wait for its deletion."""
    async with refusing(tmp_path, {}) as (targets, refusals):
        await targets.open(routing_of(LASTSRV, OFFLINE))
        await targets.close()
    kept = tmp_path / "target-101.damaged"

    async def open_table(directory: Path) -> Table:
        if directory.parent.name == "target-101" and not refusals.tries:
            refusals.tries.append(101)
            raise Corrupt("the table is damaged")
        if directory.parent.name == "target-101" and kept.exists():
            raise NoSpace("full")
        return await Table.open(directory)

    refusals.tries.clear()
    routing = routing_of(OFFLINE, other, targets=(101, *others_here))
    async with refusing(tmp_path, {}) as (targets, _):
        targets._open_table = open_table
        await targets.open(routing)
        assert list(targets.by_id) == [*others_here] and kept.exists(), "also a process without targets goes on"
        assert await targets.make_room(lambda: routing) == (other is SERVING)
        assert await targets.open_added(routing) == (other is SERVING)
        assert (101 in targets.by_id) == (other is SERVING)
        assert kept.exists() == (other is LASTSRV)
        await targets.close()


async def test_a_disk_that_cannot_be_looked_at_is_asked_for_room_again(tmp_path: Path) -> None:
    """One moment without descriptors ended the process, and all its targets."""
    async with refusing(tmp_path, {DAMAGED: NoSpace("full")}) as (targets, _):
        routing = routing_of(OFFLINE, SERVING)
        await targets.open(routing)
        (tmp_path / "target-101.damaged").mkdir()
        look = targets._disk.list_directory

        async def fail(path: Path) -> list[str]:
            raise Unavailable(f"{path}: too many open files")

        targets._disk.list_directory = fail  # type: ignore[method-assign]
        assert not await targets.make_room(lambda: routing)
        targets._disk.list_directory = look  # type: ignore[method-assign]
        assert await targets.make_room(lambda: routing)
        await targets.close()


async def test_one_that_is_open_by_now_keeps_what_is_in_quarantine(tmp_path: Path) -> None:
    """While the first one was deleted, another target found room by other means."""
    async with refusing(tmp_path, {DAMAGED: NoSpace("full"), BUSY: NoSpace("full")}) as (targets, refusals):
        routing = routing_of(OFFLINE, SERVING, targets=(101, 102, 103))
        await targets.open(routing)
        for target in (101, 102):
            (tmp_path / f"target-{target}.damaged").mkdir()
        remove = targets._disk.remove_directory

        async def remove_slowly(path: Path) -> None:
            await remove(path)
            refusals.errors.pop(BUSY)
            assert await targets.open_added(routing)

        targets._disk.remove_directory = remove_slowly  # type: ignore[method-assign]
        assert await targets.make_room(lambda: routing)
        assert (tmp_path / "target-102.damaged").exists() and not (tmp_path / "target-101.damaged").exists()
        await targets.close()


async def test_nobody_waits_while_a_quarantined_store_is_deleted_to_make_room(tmp_path: Path) -> None:
    """A large one takes a while, and no target of the node acted in a new routing meanwhile."""
    async with refusing(tmp_path, {DAMAGED: NoSpace("full")}) as (targets, refusals):
        routing = routing_of(OFFLINE, SERVING)
        await targets.open(routing)
        (tmp_path / "target-101.damaged").mkdir()
        begun, goes_on = asyncio.Event(), asyncio.Event()
        remove = targets._disk.remove_directory

        async def remove_slowly(path: Path) -> None:
            begun.set()
            await goes_on.wait()
            await remove(path)

        targets._disk.remove_directory = remove_slowly  # type: ignore[method-assign]
        making = asyncio.create_task(targets.make_room(lambda: routing))
        await begun.wait()
        refusals.errors.clear()
        assert not await targets.open_added(routing)
        goes_on.set()
        assert await making and await targets.open_added(routing)
        await targets.close()


@pytest.mark.parametrize("error", [NoSpace("full"), Unavailable("is in use by another process"), DiskFailed("gone")])
async def test_a_process_that_can_open_no_store_ends(error: ThreefsError, tmp_path: Path) -> None:
    """Unless it makes room for one that replaces a damaged one."""
    if not isinstance(error, NoSpace):
        (tmp_path / "target-102.damaged").mkdir()
    async with refusing(tmp_path, {DAMAGED: Corrupt("the table is damaged"), BUSY: error}) as (targets, _):
        with pytest.raises(type(error)):
            await targets.open(routing_of(LASTSRV, OFFLINE))


async def test_one_that_has_left_its_chain_is_opened_to_be_deleted(tmp_path: Path) -> None:
    """The manager forgets it when it is reported no more."""
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        routing = routing_of(OFFLINE, SERVING)
        await targets.open(routing)
        chain = Chain(ChainId(2), 2, (ChainMember(TargetId(202), SERVING),))
        routing = Routing(2, "c", {}, routing.targets, {**routing.chains, chain.chain_id: chain}, {})
        assert not await targets.open_added(routing, members_only=True)
        assert [report.target_id for report in targets.reports()] == [101, 102]
        refusals.errors.clear()
        assert await targets.open_added(routing, members_only=True)
        assert targets.get(102).state is None
        await targets.close()


async def test_one_that_the_manager_does_not_know_is_left_on_the_disk(tmp_path: Path) -> None:
    """A manager that was restored refuses all reports of a node with a target that it does not know."""
    async with refusing(tmp_path, {BUSY: NoSpace("full")}) as (targets, refusals):
        await targets.open(routing_of(LASTSRV, OFFLINE))
        await targets.open_added(routing_of(LASTSRV, OFFLINE, targets=(101,), version=2))
        assert [report.target_id for report in targets.reports()] == [101] and len(targets.stores()) == 1
        assert [(store.target_id, store.store_id) for store in targets.unnamed] == [(102, 0)]
        refusals.errors.clear()
        assert await targets.open_added(routing_of(LASTSRV, OFFLINE, version=3)) and not list(targets.unnamed)
        await targets.close()
