"""A storage node that says what cannot be: the manager refuses it, and goes on."""

from typing import Any

import pytest
from threefs_manager.service import Manager

from tests.harness.manager_bench import Bench, run
from tests.unit.services.threefs_manager.test_service import PLAN, storage
from threefs.errors import InvalidArgument
from threefs.ids import TargetId
from threefs.wire import manager_pb2 as pb


def report_of(target_id: int, **more: Any) -> pb.TargetReport:
    return pb.TargetReport(**{"target_id": target_id, "local_state": pb.LOCAL_UPTODATE, **more})


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([report_of(201, local_state=99)], "state 99"),
        ([report_of(201, local_state=0)], "state 0"),
        ([report_of(201), report_of(202), report_of(201)], "a target twice"),
        ([report_of(201 + n) for n in range(100)], "100 targets"),
    ],
)
def test_a_heartbeat_that_cannot_be_true_ends_nothing(reports: list[pb.TargetReport], text: str) -> None:
    """A state that does not exist ended the manager, at its next look at that chain."""

    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(2, "h:2"))
        routing = manager._publisher.routing
        versions = {t.target_id: routing.chains[t.chain_id].version for t in routing.targets.values()}
        for report in reports:
            report.chain_version = versions.get(TargetId(report.target_id), 0)
        with pytest.raises(InvalidArgument, match=text):
            await manager.heartbeat(pb.HeartbeatRequest(node_id=2, incarnation=7, targets=reports))
        assert manager._controller is not None
        await manager._controller.wait_idle(1.0)
        await manager.heartbeat(pb.HeartbeatRequest(node_id=2, incarnation=7, targets=[report_of(201)]))

    run(body)


def test_of_what_a_target_says_of_its_disk_only_the_beginning_is_kept() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(2, "h:2"))
        reports = [report_of(201, failure="broken " * 1_000_000)]
        await manager.heartbeat(pb.HeartbeatRequest(node_id=2, incarnation=7, targets=reports))
        status = await manager.get_status(pb.GetStatusRequest())
        assert status.nodes[1].targets[0].failure.startswith("broken broken") and status.ByteSize() < 10_000

    run(body)
