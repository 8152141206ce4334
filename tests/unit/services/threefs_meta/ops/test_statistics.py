"""What a service says of itself."""

import pytest
from threefs_meta.ops import statistics as statistics_module
from threefs_meta.ops.statistics import MAX_COUNTED, statistics

from tests.harness.fsck import LocalMeta
from tests.harness.meta_harness import MetaBench, at
from threefs import store_disk
from threefs.errors import NoSpace, NotFound
from threefs.rpc.methods import BATCH_STAT, STAT
from threefs.wire import common_pb2
from threefs.wire import meta_pb2 as pb


async def figures(fs: MetaBench) -> pb.StatisticsReply:
    return await statistics(fs.context, pb.StatisticsRequest())


async def test_calls_names_and_transactions_are_counted(bench: MetaBench) -> None:
    meta = LocalMeta(bench.context)
    before = await figures(bench)
    await meta.call(STAT, pb.StatRequest(place=at("/")), timeout_s=1)
    await meta.call(BATCH_STAT, pb.BatchStatRequest(places=[at("/")] * 5), timeout_s=1)
    with pytest.raises(NotFound):
        await meta.call(STAT, pb.StatRequest(place=at("/none")), timeout_s=1)
    after = await figures(bench)
    calls = {one.method: (one.calls, one.names, one.refused, one.failed) for one in after.calls}
    assert calls == {"Stat": (2, 2, 1, 0), "BatchStat": (1, 5, 0, 0)}
    assert after.transactions > before.transactions
    assert all(one.seconds >= 0 for one in after.calls)


@pytest.mark.trouble(conflict_rate=0.3)
async def test_conflicts_are_counted_by_name(bench: MetaBench) -> None:
    for number in range(30):
        await bench.mkdir(f"/{number}")
    assert (await figures(bench)).again["Conflict"] > 0


async def test_what_waits_in_the_store_is_counted_up_to_a_bound(bench: MetaBench) -> None:
    for number in range(3):
        await bench.mkdir(f"/{number}/below", parents=True)
        await bench.remove(f"/{number}", recursive=True)
    assert (await figures(bench)).removals_waiting == 3
    await bench.collect_all()
    assert (await figures(bench)).removals_waiting == 0
    assert MAX_COUNTED == 1000, "as the contract says"


async def test_quotas_are_shown_with_their_usage(bench: MetaBench) -> None:
    tree = await bench.mkdir("/tree")
    await bench.set_quota("/tree", limit_inodes=9)
    await bench.create("/tree/a")
    await bench.count_all()
    (quota,) = (await figures(bench)).quotas
    assert (quota.tree, quota.limit_inodes, quota.used_inodes) == (tree.inode, 9, 2)


async def test_a_full_store_is_said_although_it_refuses_reads(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise NoSpace("the disk is full")

    monkeypatch.setattr(statistics_module, "run_readonly", refuse)
    monkeypatch.setattr(store_disk, "describe", lambda engine: common_pb2.StoreDisk(directory="/kv", full=True))
    found = await figures(bench)
    assert (found.store_disk.directory, found.store_disk.full) == ("/kv", True)
