"""What a service says of itself."""

import pytest
from threefs_meta.ops.statistics import MOST_COUNTED, statistics

from tests.harness.fsck import LocalMeta
from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import NotFound
from threefs.rpc.methods import BATCH_STAT, STAT
from threefs.wire import meta_pb2 as pb


async def figures(fs: MetaBench) -> pb.StatisticsReply:
    return await statistics(fs.context, pb.StatisticsRequest())


def test_calls_names_and_transactions_are_counted() -> None:
    async def test(fs: MetaBench) -> None:
        meta = LocalMeta(fs.context)
        before = await figures(fs)
        await meta.call(STAT, pb.StatRequest(place=at("/")), timeout_s=1)
        await meta.call(BATCH_STAT, pb.BatchStatRequest(places=[at("/")] * 5), timeout_s=1)
        with pytest.raises(NotFound):
            await meta.call(STAT, pb.StatRequest(place=at("/none")), timeout_s=1)
        after = await figures(fs)
        calls = {one.method: (one.calls, one.names, one.refused, one.failed) for one in after.calls}
        assert calls == {"Stat": (2, 2, 1, 0), "BatchStat": (1, 5, 0, 0)}
        assert after.transactions > before.transactions
        assert all(one.seconds >= 0 for one in after.calls)

    run(test)


def test_conflicts_are_counted_by_name() -> None:
    async def test(fs: MetaBench) -> None:
        for number in range(30):
            await fs.mkdir(f"/{number}")
        assert (await figures(fs)).again["Conflict"] > 0

    run(test, conflict_rate=0.3)


def test_what_waits_in_the_store_is_counted_up_to_a_bound() -> None:
    async def test(fs: MetaBench) -> None:
        for number in range(3):
            await fs.mkdir(f"/{number}/below", parents=True)
            await fs.remove(f"/{number}", recursive=True)
        assert (await figures(fs)).removals_waiting == 3
        await fs.collect_all()
        assert (await figures(fs)).removals_waiting == 0
        assert MOST_COUNTED == 1000, "as the contract says"

    run(test)


def test_quotas_are_shown_with_their_usage() -> None:
    async def test(fs: MetaBench) -> None:
        tree = await fs.mkdir("/tree")
        await fs.set_quota("/tree", limit_inodes=9)
        await fs.create("/tree/a")
        await fs.count_all()
        (quota,) = (await figures(fs)).quotas
        assert (quota.tree, quota.limit_inodes, quota.used_inodes) == (tree.inode, 9, 2)

    run(test)
