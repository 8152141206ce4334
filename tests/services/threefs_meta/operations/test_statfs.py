"""Space of the cluster."""

from threefs_meta.operations.statfs import space, statfs

from tests.support.metadata import MetaBench, run
from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb


def report(capacity: int, used: int) -> manager_pb2.TargetReport:
    return manager_pb2.TargetReport(capacity_bytes=capacity, used_bytes=used)


def test_targets_of_one_process_share_a_disk() -> None:
    status = manager_pb2.GetStatusReply(
        nodes=[
            manager_pb2.NodeStatus(targets=[report(100, 10), report(100, 20)]),
            manager_pb2.NodeStatus(targets=[report(50, 60)]),
            manager_pb2.NodeStatus(),
        ],
        chains=[manager_pb2.Chain(members=[manager_pb2.ChainMember()] * 3)],
    )
    assert space(status) == pb.StatFsReply(capacity_bytes=150, used_bytes=90, free_bytes=70, replicas=3)
    assert space(manager_pb2.GetStatusReply()) == pb.StatFsReply()


def test_inodes_are_counted_roughly() -> None:
    async def test(fs: MetaBench) -> None:
        before = (await statfs(fs.context, pb.StatFsRequest())).inodes
        assert before == 1, "the root"
        for number in range(5):
            await fs.create(f"/{number}")
        full = (await statfs(fs.context, pb.StatFsRequest())).inodes
        assert full >= 6
        await fs.remove("/1")
        await fs.collect_all()
        assert (await statfs(fs.context, pb.StatFsRequest())).inodes == full - 1

    run(test)
