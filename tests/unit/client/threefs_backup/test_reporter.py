import asyncio
from typing import cast

from threefs_backup.follower import Follower
from threefs_backup.reporter import REPORT_INTERVAL_S, Reporter

from tests.harness.clocks import SteppedClock
from tests.harness.processes import free_port
from tests.harness.prometheus import families, samples, scrape
from threefs.errors import Unavailable
from threefs.rpc.methods import REPORT_BACKUP, Method, Rep, Req
from threefs.wire import manager_pb2 as pb


class Copy:
    """What a follower shows of itself."""

    def __init__(self, role: str, as_of_s: float, failure: str = "") -> None:
        self.role = role
        self.as_of_ns = int(as_of_s * 1e9)
        self.failure = failure
        self.length_bytes = 4096


class Manager:
    def __init__(self) -> None:
        self.requests: list[pb.ReportBackupRequest] = []
        self.is_away = False
        self.heard = asyncio.Event()

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        assert method is REPORT_BACKUP and isinstance(request, pb.ReportBackupRequest)
        if self.is_away:
            raise Unavailable("no manager is primary")
        self.requests.append(request)
        self.heard.set()
        return method.reply()


def reporter(manager: Manager, clock: SteppedClock) -> Reporter:
    copies = [Copy("meta", 997.5, "no space is left"), Copy("manager", 0)]
    return Reporter("host-b:/backup", manager, [cast(Follower, copy) for copy in copies], clock)


async def test_the_manager_hears_how_each_copy_is() -> None:
    manager = Manager()
    await reporter(manager, SteppedClock(1000.0)).report(goes_on=False)
    (request,) = manager.requests
    assert (request.name, request.report_interval_ms) == ("host-b:/backup", 0)
    meta, other = request.stores
    assert (meta.store, meta.complete, meta.behind_ms, meta.failure) == ("meta", True, 2500, "no space is left")
    assert (other.store, other.complete, other.behind_ms) == ("manager", False, 0)


async def test_reports_go_on_while_the_backup_does_also_after_an_error() -> None:
    manager = Manager()
    manager.is_away = True
    async with reporter(manager, SteppedClock()).running():
        for _ in range(10):
            await asyncio.sleep(0)
        manager.is_away = False
        await asyncio.wait_for(manager.heard.wait(), 60)
    count = len(manager.requests)
    assert count >= 1 and manager.requests[0].report_interval_ms == REPORT_INTERVAL_S * 1000
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(manager.requests) == count


async def test_prometheus_sees_the_same() -> None:
    port = free_port()
    async with reporter(Manager(), SteppedClock(1000.0)).running(port):
        found = families(await asyncio.to_thread(scrape, port))
    seen = samples(found.values())
    assert seen["threefs_backup_behind_seconds", "meta"] >= 2.5  # time passes beside
    assert (seen["threefs_backup_complete", "meta"], seen["threefs_backup_complete", "manager"]) == (1, 0)
    assert (seen["threefs_backup_failing", "meta"], seen["threefs_backup_failing", "manager"]) == (1, 0)
    assert seen["threefs_backup_length_bytes", "meta"] == 4096
    assert "threefs_build_info" in found
