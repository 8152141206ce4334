"""Disks that are missing, without room, or full while they are filled; and what is found where that goes wrong."""

from typing import Any

import pytest
from threefs_storage.health.peer_room import PeerRoom, PeerRoomQuery

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape, tight_disks
from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.scenarios import play
from tests.sim.workload import CHUNK_BYTES, Load
from tests.sim.world import LEASE_S, Size

_SIZE = Size(storage=3, targets_per_disk=1, clients=2)
_NO_ROOM = "1.0 {0} s1 6.0\n1.5 {0} s2 6.0\n8.0 cut s1 c1"
_LOAD = Load(chunks=2, pause_s=0.1, files_pause_s=0.2)
#: Blocks that are free have room for small files.
_LARGE = Load(chunks=6, pause_s=0.05, moves_s=0.3, large=0.9, files_pause_s=0.05, files_bytes=700_000)


def played(scenario: str, load: Load = _LOAD) -> Outcome:
    return run(2, size=_SIZE, load=load, scenario=parse(scenario))


def said(outcome: Outcome, text: str) -> bool:
    return any(text in line for line in outcome.trace)


def test_a_disk_that_was_missing_comes_back_when_its_targets_have_been_filled() -> None:
    outcome = played("2.0 absent s2 3.0\n12.0 cut s1 c1")
    assert not outcome.violations, outcome.violations
    assert said(outcome, "-- the disk of s2 is back")


@pytest.mark.parametrize("what", ["full", "tight"])
def test_a_chain_with_room_refuses_no_write(what: str) -> None:
    outcome = played(_NO_ROOM.format(what), _LARGE)
    assert not outcome.violations, outcome.violations


def test_a_write_that_is_refused_though_a_replica_has_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(self: PeerRoomQuery, *_: Any) -> PeerRoom:
        return PeerRoom.NOTHING

    monkeypatch.setattr(PeerRoomQuery, "ask", ask)
    assert "found no room, and each chain has a disk with room" in "\n".join(
        played(_NO_ROOM.format("tight"), _LARGE).violations
    )


def test_a_write_may_be_refused_by_a_disk_that_fills_up_while_no_manager_leads() -> None:
    """The other member is out by then, as storage knows from the manager before (seed 15356)."""
    size = Size(storage=2, replicas=2, managers=1, targets_per_disk=1, clients=2)
    outcome = run(2, size=size, load=_LARGE, scenario=parse("1.0 kill s2 6.0\n2.0 kill m1 3.0\n2.3 full s1 2.0"))
    assert not outcome.violations, outcome.violations
    assert said(outcome, "write failed: the file system is full")


@pytest.mark.parametrize("full", ["1.5 full s1 2.0", "3.5 full s1 0.3"], ids=["before", "after"])
def test_a_chain_is_noted_that_is_without_room_for_a_moment(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of its last member gets full before or after the other one is out, and no look comes while that is so
    (seed 64207)."""
    monkeypatch.setattr(tight_disks, "_LOOK_S", 1000.0)
    monkeypatch.setattr(tight_disks.TightDisks, "_is_full", lambda self: False)
    size = Size(storage=2, replicas=2, targets_per_disk=1, clients=2)
    outcome = run(2, size=size, load=_LARGE, scenario=parse(f"1.0 pause s2 4.0\n{full}\n6.0 cut s1 c1"))
    assert not outcome.violations, outcome.violations
    assert said(outcome, "write failed: the file system is full")


def test_writes_go_on_while_a_disk_is_full_that_is_to_be_filled() -> None:
    outcome = played("2.0 brim s3 60.0")
    assert not outcome.violations, outcome.violations
    assert said(outcome, "-- the disk of s3 is full, and its targets are to be brought up to date")


def test_some_seeds_have_these_faults() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    assert sum(load.absences for _, load in drawn) > 5
    assert sum(load.brims for _, load in drawn) > 3
    assert sum(size.local_stores and load.stores for size, load in drawn) > 2


def test_writes_go_on_without_a_replica_whose_disk_hangs() -> None:
    """Its process lives, and all others reach it. It comes back when the disk goes on."""
    outcome = run(5, size=Size(storage=3, stall_s=2.0), scenario=parse("1.0 hang s2 40.0\n42.0 cut s1 s2"), logs=True)
    assert not outcome.violations, outcome.violations
    assert outcome.longest["write"] < 3 * LEASE_S
    assert said(outcome, "the disk stands still") and said(outcome, "the disk goes on")


_LARGE_CHUNK = f"world stall_s=2.0\nwrite c1 x*{CHUNK_BYTES}\nthen\n"


def test_large_writes_go_on_without_a_replica_whose_disk_hangs() -> None:
    """Their bytes are written before their commits begin, so no commit waits."""
    large = f"write c1 y*{CHUNK_BYTES}\noutcome y*{CHUNK_BYTES} done"
    play(f"{_LARGE_CHUNK}at 0 do hang middle 60\nwait 0.1\n{large}\nread c2 y*{CHUNK_BYTES}\nwell")


def test_writes_go_on_without_a_replica_whose_disk_takes_bytes_and_gives_none() -> None:
    """A change of a part of a chunk needs the rest of it."""
    part = "write c1 yyy 5\noutcome yyy done"
    play(f"{_LARGE_CHUNK}cold middle 1\nat 0 do stall middle 60\nwait 0.1\n{part}\nread c2 xxxxxyyyxx\nwell")


def test_a_target_is_brought_up_to_date_by_another_one_if_the_disk_of_the_tail_gives_nothing() -> None:
    missed = "at 0 do kill middle 3\nwait 2.5\nwrite c1 yyy 5\nthen\ncold tail 1\nat 0 do stall tail 200"
    play(f"{_LARGE_CHUNK}{missed}\nwait 20\nwrite c1 zzz 5\noutcome zzz done\nsees c2 middle xxxxxzzzxx\nwell")
