"""Stores whose table is damaged, and the empty ones that take their places."""

import contextlib
import dataclasses
from pathlib import Path

import pytest
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.health import damaged_stores
from threefs_storage.health.quarantine import is_replacement
from threefs_storage.targets import Targets

from tests.harness.chain_harness import OFFLINE, SERVING, TestChain
from threefs.env.disk import RealDisk
from threefs.errors import Corrupt, NoSpace
from threefs.ids import NodeId, TargetId
from threefs.kv.table import Table
from threefs.routing import Hold


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_damaged_store_that_is_out_of_service_stays_until_it_is_to_serve(is_open: bool, tmp_path: Path) -> None:
    """An empty one on the old disk was taken for the new disk that an administrator was asked for, and filled."""
    disk, chain = RealDisk(threads=1), TestChain(tmp_path, 3)
    chain.members = [(1, SERVING), (3, SERVING), (2, OFFLINE)]
    free = chain.routing()
    out = {**free.targets, TargetId(201): dataclasses.replace(free.targets[TargetId(201)], hold=Hold.OFFLINE)}
    held = dataclasses.replace(free, targets=out)
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(held)
    before = targets.get(201).engine.store_id
    if not is_open:
        await targets.close()
        targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    (tmp_path / "target-201" / "records" / "CURRENT").write_bytes(b"damaged")
    for routing in (held, free):
        targets.apply_routing(routing)
        if is_open:
            with contextlib.suppress(Corrupt):
                await targets.reopen(targets.get(201))
        else:
            await targets.open(routing)
        (report,) = targets.reports()
        assert (report.store_id in (0, before)) == bool(report.failure) == (routing is held)
        assert (tmp_path / "target-201.damaged").exists() == (routing is free)
    await targets.close()
    await disk.close()


@pytest.mark.parametrize("step", ["opening", "removal"])
@pytest.mark.parametrize("is_adopted", [True, False])
async def test_a_damaged_store_stays_if_it_is_taken_out_of_service_while_it_is_opened(
    step: str, is_adopted: bool, tmp_path: Path
) -> None:
    """Or while an earlier one is removed from quarantine. The routing that says so may wait for the opening to end."""
    disk, chain = RealDisk(threads=1), TestChain(tmp_path, 3)
    chain.members = [(1, SERVING), (3, SERVING), (2, OFFLINE)]
    free = chain.routing()
    out = {**free.targets, TargetId(201): dataclasses.replace(free.targets[TargetId(201)], hold=Hold.OFFLINE)}
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(free)
    before = targets.get(201).engine.store_id
    (tmp_path / "target-201" / "records" / "CURRENT").write_bytes(b"damaged")
    remove = disk.remove_directory

    def take_out() -> None:
        held = dataclasses.replace(free, targets=out)
        if is_adopted:
            targets.apply_routing(held)
        else:
            targets.hear(held)

    async def open_table(directory: Path) -> Table:
        if step == "opening":
            take_out()
        return await Table.open(directory)

    async def remove_directory(path: Path) -> None:
        take_out()
        await remove(path)

    targets._open_table = open_table
    disk.remove_directory = remove_directory  # type: ignore[method-assign]
    with pytest.raises(Corrupt):
        await targets.reopen(targets.get(201))
    assert not (tmp_path / "target-201.damaged").exists() and targets.get(201).engine.store_id == before
    await targets.close()
    await disk.close()


@pytest.mark.parametrize("made", ["at a start", "while it runs", "after a crash", "in the room of the damaged one"])
async def test_an_empty_store_in_the_place_of_a_damaged_one_says_so(made: str, tmp_path: Path) -> None:
    """A hold that came before its first report knows the damaged one only: it was taken for that of the new disk."""
    disk, chain = RealDisk(threads=1), TestChain(tmp_path, 3)
    chain.members = [(1, SERVING), (3, SERVING), (2, OFFLINE)]
    place, kept = tmp_path / "target-201", tmp_path / "target-201.damaged"
    has_room = made != "in the room of the damaged one"

    async def open_table(directory: Path) -> Table:
        if kept.exists() and not has_room:
            raise NoSpace("full")
        return await Table.open(directory)

    async def started() -> Targets:
        targets = Targets(NodeId(2), tmp_path, disk, EngineSettings(), open_table=open_table)
        await targets.open(chain.routing())
        assert targets.reports()[0].replaces_damaged == kept.exists(), "also while it waits for room"
        if await targets.make_room(chain.routing):
            await targets.open_added(chain.routing())
        return targets

    targets = await started()
    assert not targets.reports()[0].replaces_damaged
    (place / "records" / "CURRENT").write_bytes(b"damaged")
    if made == "while it runs":
        await targets.reopen(targets.get(201))
    else:
        await targets.close()
        if made == "after a crash":
            place.rename(kept)
        targets = await started()
    assert targets.reports()[0].replaces_damaged and kept.exists() == has_room
    assert is_replacement(targets.get(201).engine)
    await targets.close()
    await disk.remove_directory(kept)
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(chain.routing())
    assert targets.reports()[0].replaces_damaged, "the quarantined store is not needed for it"
    await targets.close()
    await disk.close()


async def test_one_that_takes_no_mark_says_so_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the full disk of the damaged one."""
    disk, chain = RealDisk(threads=1), TestChain(tmp_path, 3)
    chain.members = [(1, SERVING), (3, SERVING), (2, OFFLINE)]
    targets = Targets(NodeId(2), tmp_path, disk, EngineSettings())
    await targets.open(chain.routing())
    (tmp_path / "target-201" / "records" / "CURRENT").write_bytes(b"damaged")
    monkeypatch.setattr(damaged_stores, "mark_replacement", lambda engine: None)
    await targets.reopen(targets.get(201))
    assert targets.reports()[0].replaces_damaged and not is_replacement(targets.get(201).engine)
    await targets.close()
    await disk.close()
