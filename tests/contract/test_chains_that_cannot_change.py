"""Somebody may ask the manager why nothing happens."""

from threefs_manager.service import Manager

from tests.harness.chain_desk import Desk, at_desk
from tests.harness.manager_bench import Bench, run
from threefs.ids import NodeId
from threefs.wire import manager_pb2 as pb


async def check_away(desk: Desk) -> None:
    told: list[str] = []
    desk.clock.on_sleep = lambda: told.append(desk.controller.failure)
    desk.engine.lost = 3
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 2
    await desk.controller.wait_idle(10)
    assert told == ["the store is away"] * 3
    assert not desk.controller.failure and desk.served_by(1) == 0


def test_as_long_as_chains_cannot_be_changed_the_reason_is_known() -> None:
    at_desk(2, check_away)


async def check_status(bench: Bench, manager: Manager) -> None:
    assert manager._controller is not None
    assert not (await manager.get_status(pb.GetStatusRequest())).failure
    manager._controller.failure = "the disk is full"
    assert (await manager.get_status(pb.GetStatusRequest())).failure == "the disk is full"


def test_the_status_tells_it() -> None:
    run(check_status)
