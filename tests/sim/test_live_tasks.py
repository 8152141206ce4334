"""Work that has ended, or never began, is found in every kind of process, and so is memory that it keeps (I19, I20)."""

import asyncio
from typing import Any

import pytest
from threefs_manager.election import Election, Epoch
from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_storage.scheduling.space_release import SpaceRelease

from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.rpc.methods import HEARTBEAT, OPEN
from threefs.rpc.server_connection import Call, ServerConnection


def violations() -> str:
    size = Size(managers=3, storage=3, targets_per_disk=1, clients=2)
    outcome = run(1, size=size, load=Load(chunks=1, pause_s=0.3), scenario=parse("0.5 kill s1 0.2"))
    return "\n".join(outcome.violations)


def test_all_is_alive_and_nothing_is_kept() -> None:
    assert not violations()


def test_a_storage_process_that_releases_no_space_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpaceRelease, "start", lambda self, targets: None)
    assert "s1 should have tasks that do SpaceRelease._run: 1, not 0" in violations()


def test_a_meta_service_that_ends_no_leases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: LeaseReaper) -> None:
        self._background.start("logical clock", self._context.logical_clock.run(self._wake.set))

    monkeypatch.setattr(LeaseReaper, "start", start)
    assert "t1 should have tasks that do LeaseReaper._run: 2, not 0" in violations()


def test_a_standby_that_looks_no_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Election._take_over
    taken: list[Election] = []

    async def take_over(self: Election, seen: Any) -> Epoch:
        if taken and self is not taken[0]:
            await asyncio.Event().wait()
        taken.append(self)
        return await right(self, seen)

    monkeypatch.setattr(Election, "_take_over", take_over)
    assert "do not take over from" in violations()


@pytest.mark.parametrize(("method", "host"), [(HEARTBEAT, "m"), (OPEN, "t")])
def test_bytes_of_requests_that_stay_counted_are_found(monkeypatch: pytest.MonkeyPatch, method: Any, host: str) -> None:
    end = ServerConnection.end

    def counted(self: ServerConnection, call: Call[Any, Any]) -> None:
        end(self, call)
        self.server.calls_bytes += call.method is method

    monkeypatch.setattr(ServerConnection, "end", counted)
    found = violations()
    assert found.startswith(host) and "counts requests in flight" in found
