"""Limits, as a service sees them."""

import asyncio

import pytest
from threefs_meta.quota.accounting import tree_account, user_account
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.store import keys

from tests.harness.meta_harness import MetaBench
from threefs.errors import QuotaExceeded
from threefs.kv import records
from threefs.kv.memory import MemoryEngine
from threefs.telemetry.damaged_records import DamagedRecords
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits, Usage


def loaded(accounts: dict[bytes, tuple[QuotaLimits, Usage]]) -> Quotas:
    async def load() -> Quotas:
        engine = MemoryEngine()
        tx = engine.begin()
        for account, (limits, usage) in accounts.items():
            tx.set(keys.limits(account), records.encode(limits))
            tx.set(keys.usage(account), records.encode(usage))
        await tx.commit()
        quotas = Quotas()
        await quotas.load(engine.begin(), DamagedRecords())
        return quotas

    return asyncio.run(load())


def file(tree: int, uid: int = 0, by_user: bool = False) -> pb.Inode:
    return pb.Inode(inode=9, type=pb.FILE, tree=tree, uid=uid, by_user=by_user)


def test_a_tree_below_counts_for_those_above_and_is_held_by_their_limits() -> None:
    quotas = loaded(
        {
            tree_account(1): (QuotaLimits(bytes=100, inodes=10), Usage(bytes=30, inodes=4)),
            tree_account(2): (QuotaLimits(parent=1), Usage(bytes=50, inodes=6)),
            tree_account(3): (QuotaLimits(bytes=1000), Usage(bytes=70)),
        }
    )
    found = quotas.nearest(tree_account(1))
    assert found is not None and found[1].used == (80, 10)
    for tree in (1, 2):
        with pytest.raises(QuotaExceeded, match="10 of at most 10 files"):
            quotas.check_create(file(tree))
        quotas.check_growth(file(tree), 20)
        with pytest.raises(QuotaExceeded, match="80 of at most 100 bytes"):
            quotas.check_growth(file(tree), 21)
        assert not quotas.is_over(file(tree))
    quotas.check_create(file(3))
    quotas.check_create(file(0))
    quotas.check_growth(file(1), -5)


def test_users_have_limits_too() -> None:
    quotas = loaded({user_account(5): (QuotaLimits(bytes=10), Usage(bytes=10, inodes=1))})
    assert quotas.is_over(file(0, 5, True))
    assert not quotas.is_over(file(0, 6, True)) and not quotas.is_over(file(0, 5, False))
    assert [account for account, _ in quotas.statuses(b"", 10)] == [user_account(5)]
    assert quotas.statuses(user_account(5), 10) == []


def test_a_quota_that_has_ended_is_not_shown_and_its_usage_counts_for_the_tree_around() -> None:
    quotas = loaded(
        {
            tree_account(1): (QuotaLimits(bytes=100), Usage(bytes=30, inodes=1)),
            tree_account(2): (QuotaLimits(parent=1, ended=True), Usage()),
            tree_account(3): (QuotaLimits(parent=2, ended=True), Usage(bytes=50, inodes=1)),
            tree_account(4): (QuotaLimits(parent=3, ended=True), Usage()),
            tree_account(5): (QuotaLimits(parent=6, ended=True), Usage(inodes=1)),
        }
    )
    ((account, status),) = quotas.statuses(b"", 10)
    assert account == tree_account(1) and status.used == (80, 2)
    assert [quotas.nearest(tree_account(tree)) for tree in (1, 2, 3, 4)] == [(account, status)] * 4
    assert quotas.nearest(tree_account(5)) is None
    with pytest.raises(QuotaExceeded, match="80 of at most 100 bytes"):
        quotas.check_growth(file(3), 21)
    assert quotas.unused() == [tree_account(4)], "what counts for 3 counts for 1 by way of 2"


def test_records_that_go_in_circles_do_no_harm() -> None:
    quotas = loaded(
        {
            tree_account(1): (QuotaLimits(parent=2), Usage(bytes=1)),
            tree_account(2): (QuotaLimits(parent=1), Usage(bytes=1)),
        }
    )
    assert not quotas.is_over(file(1))
    assert [status.used.bytes for _, status in quotas.statuses(b"", 10)] == [2, 2], "each counts once for the other"


async def test_errors_name_the_directory_and_not_its_number(bench: MetaBench) -> None:
    directory = await bench.mkdir("/projects")
    await bench.mkdir("/projects/vision")
    tx = bench.context.engine.begin()
    tx.set(keys.limits(tree_account(directory.inode)), records.encode(QuotaLimits(inodes=1)))
    tx.set(keys.usage(tree_account(directory.inode)), records.encode(Usage(inodes=1)))
    await tx.commit()
    quotas = Quotas()
    await quotas.load(bench.context.engine.begin(), bench.context.damaged)
    with pytest.raises(QuotaExceeded, match="the tree /projects has 1 of at most 1 files"):
        quotas.check_create(file(directory.inode))
    await bench.rename("/projects", "/old")
    await quotas.load(bench.context.engine.begin(), bench.context.damaged)
    with pytest.raises(QuotaExceeded, match="the tree /old has"):
        quotas.check_create(file(directory.inode))
    tx = bench.context.engine.begin()
    tx.clear(keys.limits(tree_account(directory.inode)))
    tx.clear(keys.usage(tree_account(directory.inode)))
    await tx.commit()
