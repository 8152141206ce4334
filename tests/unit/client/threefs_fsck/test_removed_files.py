"""What was removed after the backup has its names again after the restore, and fsck names it."""

from dataclasses import replace

import pytest
from threefs_fsck.findings import Finding, Report
from threefs_fsck.metadata import MetadataCheck
from threefs_meta.store import keys
from threefs_meta.store.identity import _finish_restore

from tests.harness.fsck import LocalMeta, check_removed_files
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.errors import NotServing, PeerClosed, Stopping, ThreefsError
from threefs.ids import TableId
from threefs.kv import dump, records, restore_mark, retry
from threefs.kv.engine_api import Pair, Transaction
from threefs.layout import from_wire
from threefs.routing import ChainMember, PublicState
from threefs.wire import meta_pb2 as pb
from threefs.wire.manager_pb2 import AdmitStoreReply
from threefs.wire.records_pb2 import StoreRecord

CHUNK = 64 << 10
LAYOUT = pb.Layout(chunk_bytes=CHUNK, stripe=2)
Backup = list[Pair]


async def file(bench: MetaBench, path: str, chunks: int = 3) -> pb.Inode:
    inode = (await bench.create(path, session=SESSION, layout=LAYOUT)).inode
    for number in range(chunks):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    return await bench.close(inode, SESSION, length_hint=chunks * CHUNK, written=True)


async def backup(bench: MetaBench) -> Backup:
    return list(await bench.engine.begin().get_range(b"", dump.KEYS_END))


async def restore(bench: MetaBench, pairs: Backup) -> None:
    async def load(tx: Transaction) -> None:
        for key, _ in await tx.get_range(b"", dump.KEYS_END):
            tx.clear(key)
        for key, value in pairs:
            tx.set(key, value)
        tx.set(keys.STORE, records.encode(StoreRecord(store_id="s")))
        restore_mark.write_mark(tx, complete=True)

    await retry.run(bench.engine, load, replayable=True)
    given, now_ns = AdmitStoreReply(epoch=1, first_number=77), bench.clock.wall_ns()
    await retry.run(bench.engine, lambda tx: _finish_restore(tx, given, now_ns), replayable=True)


async def remove(bench: MetaBench, path: str) -> None:
    await bench.remove(path)
    await bench.collect_all()


async def found(bench: MetaBench) -> list[Finding]:
    """As `threefs fsck` does it: the metadata say whether they were restored."""
    meta = LocalMeta(bench.context)
    metadata = MetadataCheck(meta, Report(), repair=False, progress=lambda title, rows: None)
    await metadata.run()
    report = await check_removed_files(meta, bench.storage, bench.chunks, restored_ns=metadata.restored_ns)
    return report.findings


async def test_a_file_that_was_removed_since_the_backup_is_named(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.mkdir("/d/e")
    await file(bench, "/d/e/gone")
    await file(bench, "/stays")
    await file(bench, "/before")
    await remove(bench, "/before")
    pairs = await backup(bench)
    await remove(bench, "/d/e/gone")
    assert not await found(bench), "nothing was restored"
    await restore(bench, pairs)
    (finding,) = await found(bench)
    assert finding.kind == "removed_file" and finding.inode == (await bench.stat("/d/e/gone")).inode
    assert finding.detail.startswith("/d/e/gone was removed after the backup")


async def test_each_name_of_a_removed_file_is_named(bench: MetaBench) -> None:
    await file(bench, "/one")
    await bench.link("/one", "/two")
    pairs = await backup(bench)
    await bench.remove("/one")
    await remove(bench, "/two")
    await restore(bench, pairs)
    assert sorted(finding.name for finding in await found(bench)) == [b"one", b"two"]


async def test_what_is_a_hole_or_was_written_again_is_no_removed_file(bench: MetaBench) -> None:
    await bench.create("/hole")
    await bench.truncate("/hole", 5 * CHUNK)
    shorter = await file(bench, "/shorter")
    await bench.truncate("/shorter", CHUNK)
    again = await file(bench, "/again")
    pairs = await backup(bench)
    await remove(bench, "/again")
    await restore(bench, pairs)
    assert [finding.inode for finding in await found(bench)] == [again.inode]
    await bench.write(again, 0, b"new")
    await bench.write(shorter, 0, b"new")
    assert not await found(bench)


async def test_what_is_emptied_after_the_restore_is_no_removed_file(bench: MetaBench) -> None:
    await file(bench, "/a")
    await restore(bench, await backup(bench))
    bench.clock.advance(60.0)
    await bench.truncate("/a", 0)
    await bench.truncate("/a", 2 * CHUNK)
    assert not await found(bench)


@pytest.mark.parametrize("error", [NotServing(), PeerClosed(), Stopping()])
async def test_a_chain_that_does_not_answer_is_reported(bench: MetaBench, error: ThreefsError) -> None:
    await file(bench, "/a")
    pairs = await backup(bench)
    await remove(bench, "/a")
    await restore(bench, pairs)
    bench.storage.before = [lambda *_: error]
    kinds = [finding.kind for finding in await found(bench)]
    assert kinds == ["chain_unavailable", "removed_file"]


async def test_a_chain_that_nobody_serves_does_not_end_the_check(bench: MetaBench) -> None:
    """A file may have its bytes there: nobody can say, and what was found elsewhere is told all the same."""
    seen = await file(bench, "/seen", chunks=2)
    await file(bench, "/unseen", chunks=2)
    pairs = await backup(bench)
    await remove(bench, "/seen")
    await remove(bench, "/unseen")
    await restore(bench, pairs)
    inode = await bench.stat("/seen")
    inode.layout.stripe = 1
    await retry.run(bench.engine, lambda tx: put(tx, inode), replayable=True)
    routing = bench.storage.cluster.routing
    own = set(from_wire(inode.layout).chains(routing.tables[TableId(1)]))
    lost = next(chain for number, chain in routing.chains.items() if number not in own)
    members = tuple(ChainMember(member.target_id, PublicState.LASTSRV) for member in lost.members)
    chains = {**routing.chains, lost.chain_id: replace(lost, members=members)}
    bench.storage.cluster.learn(replace(routing, version=2, chains=chains))
    findings = await found(bench)
    assert [one.kind for one in findings] == ["chain_unavailable", "removed_file"]
    assert findings[1].inode == seen.inode and f"chain {lost.chain_id}" in findings[0].detail


async def put(tx: Transaction, inode: pb.Inode) -> None:
    tx.set(keys.inode(inode.inode), records.encode(inode))
