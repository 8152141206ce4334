from threefs_meta.fsck import usage
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import ZERO, Cost, user_account
from threefs_meta.quota.aggregator import UsageAggregator
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import MetaBench
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Usage


async def charge(bench: MetaBench, uid: int, inodes: int) -> None:
    record = accounting.to_record({user_account(uid): Cost(0, inodes)})
    await damage.put(bench, keys.delta(1, bytes([uid, inodes % 256]) * 4), records.encode(record))


async def tidy(bench: MetaBench) -> None:
    for prefix in (keys.USAGE, keys.DELTAS):
        for key, _ in await bench.engine.begin().get_range(*prefix):
            await damage.put(bench, key, None)


async def test_pages_have_all_sums_with_what_waits(bench: MetaBench) -> None:
    for uid in range(1, 6):
        await damage.put(bench, keys.usage(user_account(uid)), records.encode(Usage(inodes=uid, changes=1)))
    for uid in (0, 3, 9):
        await charge(bench, uid, 100)
    found: dict[int, tuple[int, int]] = {}
    after, more = b"", True
    while more:
        page, after = await usage.page(bench.engine.begin(), after, 2)
        assert not {accounting.number_of(one.account) for one in page} & set(found)
        found |= {accounting.number_of(one.account): (one.inodes, one.changes) for one in page}
        more = bool(after)
    assert found == {0: (100, 1), 1: (1, 1), 2: (2, 1), 3: (103, 2), 4: (4, 1), 5: (5, 1), 9: (100, 1)}
    await tidy(bench)


async def test_a_sum_that_was_changed_is_not_judged(bench: MetaBench) -> None:
    await charge(bench, 1, 3)
    (kept,), _ = await usage.page(bench.engine.begin(), b"", 10)
    counted = pb.FsckUsage(account=kept.account, inodes=7)
    assert await usage.difference(bench.engine.begin(), kept, counted) == Cost(0, 4)
    await UsageAggregator(bench.context).run_once()
    assert await usage.difference(bench.engine.begin(), kept, counted) == Cost(0, 4), "adding up changes nothing"
    await charge(bench, 1, 1)
    await charge(bench, 1, -1)
    assert await usage.difference(bench.engine.begin(), kept, counted) == ZERO
    await tidy(bench)


async def test_a_sum_that_has_come_back_to_nothing_was_changed(bench: MetaBench) -> None:
    """Both counts had seen the only file of a user, which came and went: the repair charged it for good."""
    kept = pb.FsckUsage(account=user_account(1))
    for inodes in (1, -1):
        await charge(bench, 1, inodes)
        await UsageAggregator(bench.context).run_once()
    counted = pb.FsckUsage(account=kept.account, inodes=1)
    assert await usage.difference(bench.engine.begin(), kept, counted) == ZERO
    assert (await usage.page(bench.engine.begin(), b"", 10))[0] == [pb.FsckUsage(account=kept.account, changes=2)]
    await tidy(bench)
