"""Usage is what there is: through all operations, by deltas, walks and retries."""

import asyncio
import random

import pytest
from threefs_meta.ops.quota import list_quotas
from threefs_meta.quota import accounting
from threefs_meta.quota.aggregator import DELTAS_PER_TRANSACTION, ENTRIES_PER_TRANSACTION, UsageAggregator
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench
from tests.harness.namespace_audit import audit
from threefs.errors import Conflict, ThreefsError
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits


async def filled(fs: MetaBench, path: str, length: int) -> None:
    made = (await fs.create(path, session=SESSION, parents=True)).inode
    await fs.close(made, SESSION, length_hint=length, written=True)


async def used(fs: MetaBench, path: str = "", uid: int | None = None) -> tuple[int, int]:
    await fs.count_all()
    quota = await fs.quota(path, uid=uid)
    assert quota is not None and not quota.counting
    return quota.used_bytes, quota.used_inodes


async def test_what_was_there_before_is_counted_bit_by_bit(bench: MetaBench) -> None:
    for number in range(ENTRIES_PER_TRANSACTION + 10):
        await filled(bench, f"/t/d/{number}", 10)
    await filled(bench, "/outside", 10)
    quota = await bench.set_quota("/t", limit_bytes=10_000)
    assert quota.counting
    assert await used(bench, "/t/d/3") == (10 * (ENTRIES_PER_TRANSACTION + 10), ENTRIES_PER_TRANSACTION + 12)
    assert await bench.quota("/outside") is None
    await bench.set_quota("/t", clear=True)
    await bench.count_all()
    assert await bench.quota("/t/d") is None
    assert not await bench.engine.begin().get_range(*keys.USAGE)


async def test_a_tree_in_a_tree(bench: MetaBench) -> None:
    await filled(bench, "/a/b/c/file", 7)
    await filled(bench, "/a/file", 5)
    await bench.set_quota("/a/b/c")
    await bench.set_quota("/a")
    assert await used(bench, "/a/b/c") == (7, 2)
    assert await used(bench, "/a") == (12, 5)
    await bench.set_quota("/a/b")
    assert await used(bench, "/a/b") == (7, 3)
    await bench.rename("/a/b", "/b")
    assert await used(bench, "/b") == (7, 3)
    assert await used(bench, "/a") == (5, 2)


async def test_a_rename_takes_its_usage_along(bench: MetaBench) -> None:
    await filled(bench, "/a/d/one", 3)
    await filled(bench, "/a/two", 4)
    await bench.mkdir("/b")
    for top in ("/a", "/b"):
        await bench.set_quota(top)
    assert await used(bench, "/a") == (7, 4)
    await bench.rename("/a/two", "/b/two")
    assert (await used(bench, "/a"), await used(bench, "/b")) == ((3, 3), (4, 2))
    await bench.rename("/a/d", "/b/d")
    assert (await used(bench, "/a"), await used(bench, "/b")) == ((0, 1), (7, 4))
    await bench.remove("/b/d", recursive=True)
    await bench.collect_all()
    assert await used(bench, "/b") == (4, 2)


async def test_users_are_counted_from_the_first_quota_of_one_on(bench: MetaBench) -> None:
    await filled(bench, "/d/before", 3)
    await bench.set_quota(uid=0, limit_bytes=100)
    await filled(bench, "/d/after", 4)
    assert await used(bench, uid=0) == (7, 4)
    await bench.truncate("/d/after", 1)
    assert await used(bench, uid=0) == (4, 4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.05, unknown_rate=0.05)
async def test_whatever_is_done_the_sums_are_right(bench: MetaBench, seed: int) -> None:
    """The audit at the end of each test compares them with the inodes."""

    async def step(fs: MetaBench, dice: random.Random) -> None:
        def path() -> str:
            return "/" + "/".join(dice.choice("abc") for _ in range(dice.randint(1, 3)))

        try:
            match dice.randrange(10):
                case 0 | 1 | 2:
                    await filled(fs, path(), dice.randrange(1000))
                case 3 | 4:
                    await fs.rename(path(), path())
                case 5:
                    await fs.remove(path(), recursive=dice.random() < 0.5)
                case 6:
                    await fs.link(path(), path())
                case 7:
                    await fs.truncate(path(), dice.randrange(1000))
                case 8:
                    await fs.mkdir(path(), parents=True)
                case 9:
                    await fs.set_quota(path(), clear=dice.random() < 0.3)
        except ThreefsError:
            pass

    dice = random.Random(seed)
    for number in range(150):
        await step(bench, dice)
        if number == 30:
            await bench.set_quota(uid=0)
        if dice.random() < 0.1:
            await asyncio.gather(bench.usage_aggregator.run_once(), UsageAggregator(bench.context).run_once())
        if dice.random() < 0.05:
            await bench.collect_all()
    await bench.audit()
    await bench.count_all()
    store = await audit(bench.engine)
    for (parent, _), entry in store.entries.items():
        above, inode = store.inodes[parent], store.inodes[entry.inode]
        if above.nlink and inode.nlink == 1 and not accounting.is_quota_root(inode):
            assert (inode.tree, inode.by_user) == (above.tree, above.by_user)


async def test_many_deltas_are_added_up_in_pages_also_by_two(bench: MetaBench) -> None:
    await bench.mkdir("/t")
    await bench.set_quota("/t")
    for number in range(DELTAS_PER_TRANSACTION + 50):
        await bench.create(f"/t/{number}")
    await asyncio.gather(*(UsageAggregator(bench.context).run_once() for _ in range(3)))
    assert await used(bench, "/t") == (0, DELTAS_PER_TRANSACTION + 51)
    assert not await bench.engine.begin().get_range(*keys.DELTAS)


async def test_it_runs_by_itself_until_it_is_stopped(bench: MetaBench) -> None:
    await bench.set_quota("/", limit_inodes=5)
    await bench.create("/a")
    bench.usage_aggregator.start()
    while bench.context.quotas.nearest(b"t" + (1).to_bytes(8, "big")) is None or await bench.engine.begin().get_range(
        *keys.DELTAS
    ):
        await asyncio.sleep(0)
    await bench.usage_aggregator.stop()


async def test_the_quota_of_a_directory_goes_with_it(bench: MetaBench) -> None:
    for path in ("/empty", "/tree/below", "/replaced", "/trash/kept", "/kept"):
        await bench.mkdir(path, parents=True)
        await bench.set_quota(path, limit_inodes=100)
    await bench.create("/tree/below/a")
    await bench.mkdir("/new")
    await bench.remove("/empty")
    await bench.remove("/tree", recursive=True)
    await bench.rename("/new", "/replaced")
    await bench.set_trash("/trash", 1000)
    await bench.create("/trash/kept/a")
    await bench.remove("/trash/kept", recursive=True)
    await bench.collect_all()
    await bench.collect_all()
    await bench.count_all()
    reply = await list_quotas(bench.context, pb.ListQuotasRequest())
    assert sorted(quota.path.rpartition(b"/")[2].partition(b"~")[0] for quota in reply.quotas) == [b"kept", b"kept"]
    assert sorted(quota.used_inodes for quota in reply.quotas) == [1, 2]


async def test_quotas_that_removed_directories_have_left_behind_go_too(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.set_quota("/d", limit_inodes=100)
    await bench.set_quota(uid=7, limit_inodes=100)
    await damage.put(bench, keys.limits(accounting.tree_account(12345)), records.encode(QuotaLimits(bytes=1)))
    await bench.count_all()
    assert len((await list_quotas(bench.context, pb.ListQuotasRequest())).quotas) == 2


async def nested(bench: MetaBench) -> tuple[bytes, bytes]:
    """The limits of /a and /a/b, which end; / has a quota, too. A file of /a/b is in the trash."""
    directories = [await bench.mkdir(path) for path in ("/a", "/a/b")]
    for path in ("/", "/a", "/a/b"):
        await bench.set_quota(path)
    await bench.set_trash("/", 1000)
    await filled(bench, "/a/b/file", 7)
    await bench.remove("/a/b/file")
    outer, inner = (keys.limits(accounting.tree_account(one.inode)) for one in directories)
    for path in ("/a/b", "/a"):
        await bench.set_quota(path, clear=True)
    return outer, inner


async def limits(bench: MetaBench) -> list[bytes]:
    return [key for key, _ in await bench.engine.begin().get_range(*keys.LIMITS)]


async def test_ended_quotas_go_once_nothing_counts_for_them(bench: MetaBench) -> None:
    outer, inner = await nested(bench)
    assert (await used(bench, "/"))[0] == 7
    assert await limits(bench) == sorted([keys.limits(accounting.tree_account(1)), outer, inner])
    (item,) = await bench.trash()
    await bench.remove(f"/.trash/0/{item.name.decode()}")
    await bench.usage_aggregator.run_once()
    assert await limits(bench) == [keys.limits(accounting.tree_account(1))]


async def test_an_ended_quota_stays_while_a_change_of_its_usage_waits(bench: MetaBench) -> None:
    """The usage that was read last knows nothing of it."""
    _, inner = await nested(bench)
    await bench.context.quotas.load(bench.engine.begin(), bench.context.damaged)
    assert bench.context.quotas.unused() and await bench.engine.begin().get_range(*keys.DELTAS)
    await bench.context.transact(bench.usage_aggregator._drop_unused)
    assert inner in await limits(bench) and (await used(bench, "/"))[0] == 7


async def test_a_quota_that_is_set_again_meanwhile_is_not_dropped(bench: MetaBench) -> None:
    _, inner = await nested(bench)
    (item,) = await bench.trash()
    await bench.remove(f"/.trash/0/{item.name.decode()}")
    tx = bench.engine.begin()
    await bench.usage_aggregator._drop_unused(tx)
    assert await tx.get(inner) is None
    await bench.set_quota("/a/b", limit_bytes=5)
    with pytest.raises(Conflict):
        await tx.commit()


async def test_an_ended_quota_whose_usage_is_damaged_stays() -> None:
    fs = await MetaBench().start()
    _, inner = await nested(fs)
    await fs.count_all()
    await damage.put(fs, keys.usage(keys.account_of(inner)), b"\1broken")
    await fs.count_all()
    assert inner in await limits(fs)


async def test_damaged_records_hold_up_no_count() -> None:
    fs = await MetaBench().start()
    await fs.mkdir("/d/e", parents=True)
    first = (await fs.create("/d/0")).inode
    for number in range(1, 4):
        await fs.create(f"/d/{number}")
    await damage.put(fs, keys.inode(first.inode), b"\1broken")
    await damage.put(fs, keys.delta(0, bytes(8)), b"\1broken")
    await fs.set_quota("/d", limit_inodes=100)
    await damage.put(fs, keys.retag((await fs.stat("/d")).inode), b"\1broken")
    await fs.count_all()
    quota = await fs.quota("/d")
    assert quota is not None and quota.used_inodes == 5 and not quota.counting
