"""Usage is what there is: through all operations, by deltas, walks and retries."""

import asyncio
import random

import pytest
from threefs_meta.ops.show_quota import list_quotas
from threefs_meta.quota import accounting
from threefs_meta.quota.aggregator import DELTAS_PER_TRANSACTION, ENTRIES_PER_TRANSACTION, UsageAggregator
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench, run
from tests.harness.namespace_audit import audit
from threefs.errors import ThreefsError
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


def test_what_was_there_before_is_counted_bit_by_bit() -> None:
    async def test(fs: MetaBench) -> None:
        for number in range(ENTRIES_PER_TRANSACTION + 10):
            await filled(fs, f"/t/d/{number}", 10)
        await filled(fs, "/outside", 10)
        quota = await fs.set_quota("/t", limit_bytes=10_000)
        assert quota.counting
        assert await used(fs, "/t/d/3") == (10 * (ENTRIES_PER_TRANSACTION + 10), ENTRIES_PER_TRANSACTION + 12)
        assert await fs.quota("/outside") is None
        await fs.set_quota("/t", clear=True)
        await fs.count_all()
        assert await fs.quota("/t/d") is None
        assert not await fs.engine.begin().get_range(*keys.USAGE)

    run(test)


def test_a_tree_in_a_tree() -> None:
    async def test(fs: MetaBench) -> None:
        await filled(fs, "/a/b/c/file", 7)
        await filled(fs, "/a/file", 5)
        await fs.set_quota("/a/b/c")
        await fs.set_quota("/a")
        assert await used(fs, "/a/b/c") == (7, 2)
        assert await used(fs, "/a") == (12, 5)
        await fs.set_quota("/a/b")
        assert await used(fs, "/a/b") == (7, 3)
        await fs.rename("/a/b", "/b")
        assert await used(fs, "/b") == (7, 3)
        assert await used(fs, "/a") == (5, 2)

    run(test)


def test_a_rename_takes_its_usage_along() -> None:
    async def test(fs: MetaBench) -> None:
        await filled(fs, "/a/d/one", 3)
        await filled(fs, "/a/two", 4)
        await fs.mkdir("/b")
        for top in ("/a", "/b"):
            await fs.set_quota(top)
        assert await used(fs, "/a") == (7, 4)
        await fs.rename("/a/two", "/b/two")
        assert (await used(fs, "/a"), await used(fs, "/b")) == ((3, 3), (4, 2))
        await fs.rename("/a/d", "/b/d")
        assert (await used(fs, "/a"), await used(fs, "/b")) == ((0, 1), (7, 4))
        await fs.remove("/b/d", recursive=True)
        await fs.collect_all()
        assert await used(fs, "/b") == (4, 2)

    run(test)


def test_users_are_counted_from_the_first_quota_of_one_on() -> None:
    async def test(fs: MetaBench) -> None:
        await filled(fs, "/d/before", 3)
        await fs.set_quota(uid=0, limit_bytes=100)
        await filled(fs, "/d/after", 4)
        assert await used(fs, uid=0) == (7, 4)
        await fs.truncate("/d/after", 1)
        assert await used(fs, uid=0) == (4, 4)

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_the_sums_are_right(seed: int) -> None:
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

    async def test(fs: MetaBench) -> None:
        dice = random.Random(seed)
        for number in range(150):
            await step(fs, dice)
            if number == 30:
                await fs.set_quota(uid=0)
            if dice.random() < 0.1:
                await asyncio.gather(fs.bookkeeper.run_once(), UsageAggregator(fs.context).run_once())
            if dice.random() < 0.05:
                await fs.collect_all()
        await fs.audit()
        await fs.count_all()
        store = await audit(fs.engine)
        for (parent, _), entry in store.entries.items():
            above, inode = store.inodes[parent], store.inodes[entry.inode]
            if above.nlink and inode.nlink == 1 and not accounting.is_root(inode):
                assert (inode.tree, inode.by_user) == (above.tree, above.by_user)

    run(test, conflict_rate=0.05, unknown_rate=0.05, seed=seed)


def test_many_deltas_are_added_up_in_pages_also_by_two() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/t")
        await fs.set_quota("/t")
        for number in range(DELTAS_PER_TRANSACTION + 50):
            await fs.create(f"/t/{number}")
        await asyncio.gather(*(UsageAggregator(fs.context).run_once() for _ in range(3)))
        assert await used(fs, "/t") == (0, DELTAS_PER_TRANSACTION + 51)
        assert not await fs.engine.begin().get_range(*keys.DELTAS)

    run(test)


def test_it_runs_by_itself_until_it_is_stopped() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_quota("/", limit_inodes=5)
        await fs.create("/a")
        fs.bookkeeper.start()
        while fs.context.quotas.status(b"t" + (1).to_bytes(8, "big")) is None or await fs.engine.begin().get_range(
            *keys.DELTAS
        ):
            await asyncio.sleep(0)
        await fs.bookkeeper.stop()

    run(test)


def test_the_quota_of_a_directory_goes_with_it() -> None:
    async def test(fs: MetaBench) -> None:
        for path in ("/empty", "/tree/below", "/replaced", "/trash/kept", "/kept"):
            await fs.mkdir(path, parents=True)
            await fs.set_quota(path, limit_inodes=100)
        await fs.create("/tree/below/a")
        await fs.mkdir("/new")
        await fs.remove("/empty")
        await fs.remove("/tree", recursive=True)
        await fs.rename("/new", "/replaced")
        await fs.set_trash("/trash", 1000)
        await fs.create("/trash/kept/a")
        await fs.remove("/trash/kept", recursive=True)
        await fs.collect_all()
        await fs.collect_all()
        await fs.count_all()
        reply = await list_quotas(fs.context, pb.ListQuotasRequest())
        assert sorted(quota.path.rpartition(b"/")[2].partition(b"~")[0] for quota in reply.quotas) == [b"kept", b"kept"]
        assert sorted(quota.used_inodes for quota in reply.quotas) == [1, 2]

    run(test)


def test_quotas_that_removed_directories_have_left_behind_go_too() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        await fs.set_quota("/d", limit_inodes=100)
        await fs.set_quota(uid=7, limit_inodes=100)
        await damage.put(fs, keys.limits(accounting.tree_account(12345)), records.encode(QuotaLimits(bytes=1)))
        await fs.count_all()
        assert len((await list_quotas(fs.context, pb.ListQuotasRequest())).quotas) == 2

    run(test)


def test_damaged_records_hold_up_no_count() -> None:
    async def test() -> None:
        fs = await MetaBench().start()
        await fs.mkdir("/d/e", parents=True)
        first = (await fs.create("/d/0")).inode
        for number in range(1, 4):
            await fs.create(f"/d/{number}")
        await damage.put(fs, keys.inode(first.inode), b"\1broken")
        await damage.put(fs, keys.delta(bytes(16)), b"\1broken")
        await fs.set_quota("/d", limit_inodes=100)
        await damage.put(fs, keys.retag((await fs.stat("/d")).inode), b"\1broken")
        await fs.count_all()
        quota = await fs.quota("/d")
        assert quota is not None and quota.used_inodes == 5 and not quota.counting

    asyncio.run(test())
