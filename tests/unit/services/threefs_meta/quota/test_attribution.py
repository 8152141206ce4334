"""Inodes that come under another quota."""

from threefs_meta.quota import accounting, attribution
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import MetaBench
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits


async def test_a_directory_is_noted_when_it_counts_for_another(bench: MetaBench) -> None:
    tx = bench.engine.begin()
    ns = bench.context.namespace(tx)
    parent = pb.Inode(inode=3, type=pb.DIRECTORY, tree=3)
    moved, file = pb.Inode(inode=4, type=pb.DIRECTORY), pb.Inode(inode=5, type=pb.FILE)
    for _ in range(2):
        await attribution.inherit_quota(ns, moved, parent)
        await attribution.inherit_quota(ns, file, parent)
    assert (moved.tree, file.tree) == (3, 3)
    assert [keys.inode_of(key) for key, _ in await tx.get_range(*keys.RETAGS)] == [4]


async def test_a_tree_of_its_own_only_learns_where_it_lies(bench: MetaBench) -> None:
    tx = bench.engine.begin()
    key = keys.limits(accounting.tree_account(4))
    tx.set(key, records.encode(QuotaLimits(bytes=7)))
    own = pb.Inode(inode=4, type=pb.DIRECTORY, tree=4)
    await attribution.inherit_quota(bench.context.namespace(tx), own, pb.Inode(inode=3, type=pb.DIRECTORY, tree=2))
    assert own.tree == 4 and not await tx.get_range(*keys.RETAGS)
    value = await tx.get(key)
    assert value is not None and records.decode(value, QuotaLimits, key) == QuotaLimits(bytes=7, parent=2)


async def test_the_quota_of_a_tree_in_no_other_one_leaves_nothing(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.set_quota("/d")
    await bench.set_quota("/d", clear=True)
    assert not await bench.engine.begin().get_range(*keys.LIMITS)


async def test_a_damaged_quota_can_be_cleared() -> None:
    fs = await MetaBench().start()
    directory = await fs.mkdir("/d")
    await damage.put(fs, keys.limits(accounting.tree_account(directory.inode)), b"\1broken")
    await fs.set_quota("/d", clear=True)
    assert not await fs.engine.begin().get_range(*keys.LIMITS)
