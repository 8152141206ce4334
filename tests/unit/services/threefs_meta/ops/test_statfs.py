"""Space of the cluster."""

import dataclasses

import pytest
from threefs_meta.ops.statfs import space, statfs
from threefs_meta.store import keys
from threefs_meta.trash.trash_reaper import TrashReaper

from tests.harness.many_changes import changed, create_of
from tests.harness.meta_harness import MetaBench
from threefs.errors import QuotaExceeded, Unavailable
from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb


def report(disk: str, capacity: int, used: int, free: int) -> manager_pb2.TargetReport:
    return manager_pb2.TargetReport(disk=disk, capacity_bytes=capacity, used_bytes=used, free_bytes=free)


def status(*nodes: list[manager_pb2.TargetReport]) -> manager_pb2.GetStatusReply:
    return manager_pb2.GetStatusReply(
        nodes=[
            manager_pb2.NodeStatus(node=manager_pb2.Node(node_id=number), targets=targets)
            for number, targets in enumerate(nodes, 1)
        ],
        tables=[manager_pb2.ChainTable(table_id=1, replicas=3), manager_pb2.ChainTable(table_id=2, replicas=2)],
    )


def test_a_disk_that_targets_share_counts_once() -> None:
    shared = status([report("x", 100, 10, 60), report("x", 100, 20, 60)], [report("x", 100, 5, 60)])
    assert space(shared) == pb.StatFsReply(capacity_bytes=100, used_bytes=35, free_bytes=60, replicas=3)
    apart = status([report("x", 100, 10, 90)], [report("y", 50, 20, 30)], [])
    assert space(apart) == pb.StatFsReply(capacity_bytes=150, used_bytes=30, free_bytes=120, replicas=3)
    unnamed = status([report("", 100, 1, 99)], [report("", 100, 1, 99)])
    assert space(unnamed).capacity_bytes == 200, "without names, one disk per process"
    assert space(manager_pb2.GetStatusReply()) == pb.StatFsReply()


def test_what_each_target_can_use_again_is_free() -> None:
    """With 40 free on the disk, a target reports these and what is unused in its own files."""
    first, second = report("x", 100, 20, 45), report("x", 100, 20, 55)
    first.reusable_bytes, second.reusable_bytes = 5, 15
    assert space(status([first], [second])).free_bytes == 40 + 5 + 15


def test_a_member_that_moves_is_no_further_replica() -> None:
    moving = status([report("x", 100, 10, 90)])
    moving.chains.add(members=[manager_pb2.ChainMember()] * 4)
    assert space(moving).replicas == 3
    del moving.tables[:]
    assert space(moving).replicas == 4, "a manager that says nothing of it"


async def test_a_manager_that_has_not_heard_of_all_disks_does_not_say_that_they_are_full(bench: MetaBench) -> None:
    """Behind a new primary, `fallocate` of a large file ended with "no space", and `df` showed a cluster of 0 bytes."""
    routing = bench.context.routing()
    chain, *_ = routing.chains.values()
    target = chain.members[0].target_id
    bench.status = status([])
    member = manager_pb2.ChainMember(target_id=target, state=manager_pb2.SERVING)
    bench.status.chains.add(members=[member, manager_pb2.ChainMember(target_id=999, state=manager_pb2.SERVING)])
    with pytest.raises(Unavailable, match="has not heard"):
        await statfs(bench.context, pb.StatFsRequest())
    bench.status.chains[0].members[0].state = manager_pb2.OFFLINE
    assert not (await statfs(bench.context, pb.StatFsRequest())).free_bytes, "it was silent for T, and serves no more"
    bench.status.chains[0].members[0].state = manager_pb2.SERVING
    bench.status.nodes[0].targets.add(target_id=target, capacity_bytes=100, free_bytes=60)
    assert (await statfs(bench.context, pb.StatFsRequest())).free_bytes == 60
    nowhere = {number: dataclasses.replace(node, address="") for number, node in routing.nodes.items()}
    bench.cluster.routing = dataclasses.replace(routing, nodes=nowhere)
    del bench.status.nodes[0].targets[:]
    await statfs(bench.context, pb.StatFsRequest())  # no process of the cluster was ever started


@pytest.mark.parametrize("way", ["by name", "replaced", "with a tree", "from the trash"])
async def test_directories_and_links_that_are_removed_at_once_do_not_count(bench: MetaBench, way: str) -> None:
    await bench.mkdir("/tree")
    await bench.set_trash("/tree", 1 if way == "from the trash" else 0)
    await bench.mkdir("/tree/directory")
    await bench.symlink("nowhere", "/tree/link")
    await bench.mknod("/tree/pipe", pb.FIFO)
    names = ["directory", "link", "pipe"]
    for name in names:
        if way == "with a tree":
            break
        if way == "replaced":
            await (bench.mkdir("/new") if name == "directory" else bench.symlink("nowhere", "/new"))
            await bench.rename("/new", f"/tree/{name}")
        else:
            await bench.remove(f"/tree/{name}")
    if way == "with a tree":
        await bench.remove("/tree", recursive=True)
    if way == "from the trash":
        assert await bench.trash()
        await bench.pass_ticks(20)
        await TrashReaper(bench.context).expire()
    await bench.collect_all()
    await bench.count_all()
    stored = len(await bench.engine.begin().get_range(*keys.INODES))
    assert (await statfs(bench.context, pb.StatFsRequest())).inodes == stored


async def test_inodes_are_counted(bench: MetaBench) -> None:
    before = (await statfs(bench.context, pb.StatFsRequest())).inodes
    assert before == 1, "the root"
    for number in range(5):
        await bench.create(f"/{number}")
    full = (await statfs(bench.context, pb.StatFsRequest())).inodes
    assert full == 6
    await bench.remove("/1")
    await bench.collect_all()
    assert (await statfs(bench.context, pb.StatFsRequest())).inodes == full - 1
    await bench.context.allocator.close()  # the next service takes a block of its own
    assert (await statfs(bench.context, pb.StatFsRequest())).inodes == full - 1
    await bench.create("/more")
    assert (await statfs(bench.context, pb.StatFsRequest())).inodes == full


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.3)
async def test_files_that_were_refused_do_not_count(bench: MetaBench, seed: int) -> None:
    """Each try took a number, and `df -i` showed more inodes with each."""
    await bench.mkdir("/full")
    await bench.create("/full/file")
    await bench.set_quota("/full", limit_inodes=1)
    await bench.count_all()
    for number in range(20):
        with pytest.raises(QuotaExceeded):
            await bench.create(f"/full/{number}")
        with pytest.raises(QuotaExceeded):
            await bench.mkdir(f"/full/{number}")
    names = [f"/full/{number}" for number in range(20)] + [f"/{number}" for number in range(20)]
    assert await changed(bench, *map(create_of, names)) == [QuotaExceeded.code] * 20 + [0] * 20
    stored = len(await bench.engine.begin().get_range(*keys.INODES))
    assert stored == 23 and (await statfs(bench.context, pb.StatFsRequest())).inodes == stored
