"""One damaged record stops nothing but what needs that very record: tried with each table."""

import pytest
from structlog.testing import capture_logs
from threefs_meta.locks.file_locks import END
from threefs_meta.ops.create import create
from threefs_meta.ops.lock import lock
from threefs_meta.ops.report_atime import report_atime
from threefs_meta.quota.accounting import tree_account, user_account
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.fsck import LocalMeta, check_metadata
from tests.harness.meta_harness import MetaBench, at
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Counter, CutMark, LockWait, UsageDelta, WriteSession

#: All tables that there are: a new one is tried, too.
TABLES = {
    name: value
    for name, value in vars(keys).items()
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(bound, bytes) for bound in value)
}
#: Of these no damaged record stays: it is dropped or replaced by what needs it, or nothing reads what it says.
_REPLACED = ("CLIENTS", "RENEWALS", "TRUNCATION_MARKS", "DELTAS", "USAGE", "RETAGS", "ENDED", "REMOVALS")
BROKEN, DEAD = b"b" * 16, b"d" * 16


class Household:
    """One of everything that background work has to deal with, below a directory of its own, of one client."""

    def __init__(self, fs: MetaBench, client: bytes) -> None:
        self.fs = fs
        self.client = client
        self.top = f"/{client[:1].decode()}"
        self.file = self.gone = pb.Inode()
        self.trashed = b""

    async def fill(self) -> None:
        fs, client, top = self.fs, self.client, self.top
        await fs.mkdir(f"{top}/trash", parents=True)
        mutation = pb.Mutation(client=client, request=1)
        session = client[:1] * 16
        made = await create(fs.context, pb.CreateRequest(mutation=mutation, place=at(f"{top}/file"), session=session))
        self.file = made.inode
        await fs.write(self.file, 0, b"four")
        await fs.set_xattr(f"{top}/file", b"user.a", b"1")
        lease = (await fs.renew(client, hold=[self.file.inode])).lease
        wanted = pb.FileLock(kind=pb.FLOCK, type=pb.EXCLUSIVE, owner=1, start=0, end=END)
        mutation = pb.Mutation(client=client, request=2)
        await lock(fs.context, pb.LockRequest(mutation=mutation, inode=self.file.inode, lock=wanted))
        wait = LockWait(inode=self.file.inode, lock=wanted, lease=lease)
        await damage.put(fs, keys.wait(client, 2), records.encode(wait))
        await damage.put(fs, keys.truncation_mark(self.file.inode), records.encode(CutMark(stamp=1)))
        former = client[:1] + b"former".ljust(15)
        await fs.renew(former, end=(await fs.renew(former, hold=[self.file.inode])).lease)
        self.gone = (await fs.create(f"{top}/gone")).inode
        await fs.write(self.gone, 0, b"four")
        await fs.remove(f"{top}/gone")
        await fs.set_trash(f"{top}/trash", 1)
        await fs.create(f"{top}/trash/kept")
        before = {key for key, _ in await fs.engine.begin().get_range(*keys.TRASH)}
        await fs.remove(f"{top}/trash/kept")
        (self.trashed,) = {key for key, _ in await fs.engine.begin().get_range(*keys.TRASH)} - before
        await fs.set_quota(top, limit_inodes=100)
        await fs.count_all()
        await fs.set_quota(f"{top}/trash", limit_inodes=100)

    async def check_done(self) -> None:
        """All that was to be done for it has been done."""
        fs, number = self.fs, self.file.inode
        found = await fs.stat(f"{self.top}/file")
        assert found.length == 4 and not await fs.engine.begin().get_range(*keys.sessions(number))
        for attached in (keys.holds(number), keys.locks(number)):
            assert not await fs.engine.begin().get_range(*attached)
        replay = keys.replay(self.client, 1)
        for key in (keys.wait(self.client, 2), keys.truncation_mark(number), replay, self.trashed):
            assert await damage.get(fs, key) is None
        assert await damage.get(fs, keys.inode(self.gone.inode)) is None and not fs.chunk_numbers(self.gone)
        quota = await fs.quota(self.top)
        assert quota is not None and (quota.used_bytes, quota.used_inodes) == (4, 3)


async def _spared(fs: MetaBench) -> set[int]:
    """Directories that all share: without them no path leads anywhere."""
    return {ROOT, *[(await fs.stat(path)).inode for path in ("/.trash", "/.trash/0")]}


async def _damage(fs: MetaBench, table: tuple[bytes, bytes]) -> list[bytes]:
    """Damage all records of a table; returns their keys."""
    spared = await _spared(fs)
    of_inodes = table in (keys.INODES, keys.ENTRIES, keys.TIMES)
    rows = [
        key
        for key, _ in await fs.engine.begin().get_range(*table)
        if not (of_inodes and keys.inode_of(key) in spared) and not (table == keys.TIMES and keys.is_subdirectory(key))
    ]
    for key in rows:
        await damage.put(fs, key, b"\1damaged")
    return rows


async def _work(fs: MetaBench) -> None:
    """All work in the background, long after everything that it waits for."""
    tick = fs.context.logical_clock.tick
    for later in (1, 2, 3):
        await damage.put(fs, keys.TICK, records.encode(Counter(value=tick + later * 100_000)))
        await fs.context.logical_clock.poll()
        await fs.lease_reaper.reap()
        for _ in range(5):
            await fs.collector.collect()
            await fs.collector._trash_reaper.expire()
            await fs.collector.expire_replays()
        for _ in range(3):
            await fs.usage_aggregator.run_once()


@pytest.mark.parametrize("name", sorted(TABLES))
async def test_work_in_the_background_goes_on_beside_damaged_records(name: str) -> None:
    fs = await MetaBench().start()
    broken, dead = Household(fs, BROKEN), Household(fs, DEAD)
    await broken.fill()
    damaged = await _damage(fs, TABLES[name])
    assert damaged, "a record of each table is tried"
    await dead.fill()
    with capture_logs() as logs:
        await _work(fs)
        await dead.check_done()
        told = [(line["key"], line["event"]) for line in logs if "hint" in line]
        assert len(told) == len(set(told)), "each is told of once"
    left = [key for key in damaged if await damage.get(fs, key) == b"\1damaged"]
    assert bool(left) != (name in _REPLACED)
    report = await check_metadata(LocalMeta(fs.context))
    details = "\n".join(finding.detail for finding in report.findings)
    assert all(repr(key) in details for key in left)


async def test_what_a_client_held_is_released_although_its_lease_cannot_be_read() -> None:
    fs = await MetaBench().start()
    broken = Household(fs, BROKEN)
    await broken.fill()
    await damage.put(fs, keys.client(BROKEN), b"\1damaged")
    before = await fs.renew(DEAD)
    await _work(fs)
    await broken.check_done()
    assert not await fs.engine.begin().get_range(*keys.ENDED)
    assert (await fs.renew(BROKEN)).lease > before.lease, "it begins anew"
    await fs.renew(BROKEN, end=(await fs.renew(BROKEN)).lease)
    await fs.audit()


async def test_a_lease_that_is_renewed_meanwhile_does_not_end(bench: MetaBench) -> None:
    """The record of a client is damaged, and is good again before it is ended."""
    lease = (await bench.renew(DEAD)).lease
    record = await damage.get(bench, keys.client(DEAD))
    await damage.put(bench, keys.client(DEAD), b"\1damaged")
    look = bench.lease_reaper._leases_of

    async def leases_of(client: bytes) -> set[int]:
        found = await look(client)
        await damage.put(bench, keys.client(DEAD), record)
        return {*found, lease}

    bench.lease_reaper._leases_of = leases_of  # type: ignore[method-assign]
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    assert (await bench.renew(DEAD)).lease == lease


async def test_leases_that_ended_later_than_hundreds_that_cannot_be_released_are_released() -> None:
    fs = await MetaBench().start()
    stuck = (await fs.create("/stuck")).inode
    for number in range(300):
        client = number.to_bytes(16, "big")
        session = WriteSession(client=client, lease=(await fs.renew(client)).lease)
        await damage.put(fs, keys.session(stuck.inode, client), records.encode(session))
    await damage.put(fs, keys.inode(stuck.inode), b"\1damaged")
    dead = Household(fs, DEAD)
    await dead.fill()
    await _work(fs)
    await dead.check_done()


async def test_access_times_of_other_files_are_stored(bench: MetaBench) -> None:
    files = [(await bench.create(f"/{number}")).inode for number in range(3)]
    value = await damage.get(bench, keys.inode(files[1].inode))
    await damage.put(bench, keys.inode(files[1].inode), b"\1damaged")
    bench.clock.advance(10 * 24 * 3600)
    await report_atime(bench.context, pb.ReportAtimeRequest(inode=[file.inode for file in files], ago_ms=[1, 1, 1]))
    for number in (0, 2):
        assert (await bench.stat(f"/{number}")).atime_ns > files[number].atime_ns
    await damage.put(bench, keys.inode(files[1].inode), value)


async def test_damaged_quotas_limit_nothing_and_the_others_hold() -> None:
    """Also at the start of a service, which reads them all."""
    fs = await MetaBench().start()
    for path in ("/a", "/b", "/c/d"):
        await fs.mkdir(path, parents=True)
        await fs.set_quota(path, limit_inodes=10)
    await fs.count_all()
    numbers = [(await fs.stat(path)).inode for path in ("/a", "/b", "/c")]
    await damage.put(fs, keys.limits(tree_account(numbers[0])), b"\1damaged")
    await damage.put(fs, keys.usage(tree_account(numbers[1])), b"\1damaged")
    await damage.put(fs, keys.inode(numbers[2]), b"\1damaged")
    quotas = Quotas()
    await quotas.load(fs.engine.begin(), fs.context.damaged)
    found = {account[-1]: (status.limits.inodes, status.used.inodes) for account, status in quotas.statuses(b"", 10)}
    assert sorted(found.values()) == [(10, 0), (10, 1)]


async def test_a_sum_that_was_damaged_is_counted_anew_by_fsck() -> None:
    fs = await MetaBench().start()
    await fs.mkdir("/a")
    await fs.set_quota("/a")
    await fs.create("/a/0")
    await fs.count_all()
    await damage.put(fs, keys.usage(tree_account((await fs.stat("/a")).inode)), b"\1damaged")
    await damage.put(fs, keys.delta((1 << 64) - 1, bytes(8)), b"\1damaged")
    await fs.create("/a/1")
    report = await check_metadata(LocalMeta(fs.context), repair=True)
    assert report.kinds["wrong_usage"] == 1 and report.kinds["unreadable_record"] == 2
    await fs.count_all()
    quota = await fs.quota("/a")
    assert quota is not None and quota.used_inodes == 3
    await fs.audit()


async def test_fsck_drops_damaged_records_that_nobody_misses() -> None:
    fs = await MetaBench().start()
    for key in (keys.usage(user_account(7)), keys.wait(DEAD, 1)):
        await damage.put(fs, key, b"\1damaged")
    report = await check_metadata(LocalMeta(fs.context), repair=True)
    assert [(finding.kind, finding.repaired) for finding in report.findings] == [("unreadable_record", True)] * 2
    await fs.audit()


async def test_files_are_freed_although_nobody_can_count_them() -> None:
    fs = await MetaBench().start()
    gone = (await fs.create("/d/gone", parents=True)).inode
    await damage.put(fs, keys.REMOVED_INODES, b"\1damaged")
    await fs.remove("/d", recursive=True)
    await fs.collect_all()
    assert await damage.get(fs, keys.inode(gone.inode)) is None
    report = await check_metadata(LocalMeta(fs.context))
    assert "removed_inodes" in report.findings[0].detail


async def test_a_delta_of_usage_is_no_damage(bench: MetaBench) -> None:
    """Else the tests above would show nothing."""
    await damage.put(bench, keys.delta(0, bytes(8)), records.encode(UsageDelta()))
    report = await check_metadata(LocalMeta(bench.context))
    assert not report.findings
