"""Counts that are kept are those of a recount: after random operations of several clients at once, in transactions that
conflict and whose outcome is unknown."""

import asyncio
import contextlib
from collections import Counter

import pytest
from threefs_meta.batch.batch_transaction import run_batch
from threefs_meta.ops.statfs import statfs
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import charges_of
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.trash.trash_reaper import TrashReaper

from tests.harness.meta_harness import SESSION, MetaBench, at
from tests.harness.namespace_audit import audit
from tests.harness.seeded_random import SeededRandom
from threefs.errors import ThreefsError
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb

_USERS = 3
_CALLS = 250


class _Caller:
    """Makes random calls. The names are few, so they often meet."""

    def __init__(self, bench: MetaBench, random: SeededRandom) -> None:
        self.bench = bench
        self.random = random
        self.files: list[pb.Inode] = []

    def path(self) -> str:
        depth = 1 + self.random.below(3)
        return "".join(f"/{'abcd'[self.random.below(4)]}" for _ in range(depth))

    async def call(self) -> None:
        bench, path, other, size = self.bench, self.path(), self.path(), self.random.below(5000)
        match self.random.below(21):
            case 0 | 1:
                await bench.mkdir(path, parents=bool(self.random.below(2)))
            case 2:
                await bench.symlink(other, path)
            case 3:
                await bench.mknod(path, pb.FIFO)
            case 4:
                await bench.link(path, other)
            case 5 | 6:
                await bench.rename(path, other, exchange=not self.random.below(3))
            case 7 | 8:
                await bench.remove(path, recursive=bool(self.random.below(2)))
            case 9:
                await bench.truncate(path, size)
            case 10:
                await bench.set(path, False, uid=self.random.below(_USERS))
            case 11:
                limit = 5 + self.random.below(100)
                await bench.set_quota(path, limit_inodes=limit, clear=not self.random.below(3))
            case 12:
                limit = 1000 + self.random.below(100_000)
                await bench.set_quota(uid=self.random.below(_USERS), limit_bytes=limit, clear=not self.random.below(3))
            case 13:
                await bench.set_trash(path, self.random.below(2) * 30)
            case 14:
                await bench.set_xattr(path, b"user.a", bytes(size % 100))
            case 15:
                await self.batch()
            case 16:
                self.files += await bench.precreate(path, 1 + self.random.below(3))
            case 17 if self.files:
                await bench.publish(self.files.pop(), path, length=0, replace=bool(self.random.below(2)))
            case 18:
                await bench.create(path, session=SESSION, unnamed=True)
            case _:
                await self.write(path, size)

    async def write(self, path: str, size: int) -> None:
        file = (await self.bench.create(path, session=SESSION, truncate=not self.random.below(3))).inode
        await self.bench.write(file, 0, bytes(size))
        await self.bench.close(file, SESSION, length_hint=size, written=True, attempted_end=size)

    async def batch(self) -> None:
        mutation = self.bench.mutation()
        self.bench._request += 16
        request = pb.BatchRequest(mutation=mutation)
        for _ in range(1 + self.random.below(8)):
            path, other = at(self.path()), at(self.path())
            match self.random.below(4):
                case 0 | 1:
                    request.changes.add(create=pb.CreateRequest(place=path, mode=0o644))
                case 2:
                    request.changes.add(remove=pb.RemoveRequest(place=path))
                case _:
                    request.changes.add(rename=pb.RenameRequest(source=path, destination=other))
        await run_batch(self.bench.context, request)


async def _run(bench: MetaBench, caller: _Caller) -> None:
    for _ in range(_CALLS):
        with contextlib.suppress(ThreefsError):
            await caller.call()
        if not caller.random.below(30):
            await bench.usage_aggregator.run_once()
        if not caller.random.below(40):
            await bench.collector.collect()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.05, unknown_rate=0.05)
async def test_kept_counts_are_those_of_a_recount(bench: MetaBench, seed: int) -> None:
    """Only the count of inodes may be too high: a number that was taken and not used stays counted."""
    await asyncio.gather(*(_run(bench, _Caller(bench, SeededRandom(seed, number))) for number in range(3)))
    await bench.audit()
    await bench.pass_ticks(100)
    await bench.lease_reaper.reap()
    while await TrashReaper(bench.context).expire():
        pass
    await bench.collect_all()
    await bench.count_all()
    store = await audit(bench.engine)
    inodes = store.inodes.values()
    due: dict[accounting.Account, accounting.Cost] = {}
    for inode in inodes:
        accounting.add(due, charges_of(inode), 1)
    used = {account: cost for account, cost in store.usage.items() if cost != accounting.ZERO}
    assert used == due, "all deltas have been added up"
    assert not any(map(accounting.is_tree, store.usage.keys() - due.keys())), "the sums of trees go"
    quotas = Quotas()
    await quotas.load(bench.engine.begin(), bench.context.damaged)
    assert not quotas.unused(), "quotas that have ended go"
    below = Counter(inode.parent for inode in inodes if inode.type == pb.DIRECTORY and inode.inode != ROOT)
    for inode in inodes:
        if inode.type == pb.DIRECTORY:
            ns = bench.context.namespace(bench.engine.begin())
            assert (await ns.with_times(pb.Inode.FromString(inode.SerializeToString()))).nlink == 2 + below[inode.inode]
    assert (await statfs(bench.context, pb.StatFsRequest())).inodes >= len(store.inodes)
