import asyncio
from pathlib import Path

import pytest

from tests.harness.clocks import SteppedClock
from threefs import backup_source
from threefs.backup_source import BackupSource
from threefs.errors import NotFound, NotSupported, Overloaded, TooOld, Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.kv.rocks import RocksEngine
from threefs.wire import backup_pb2 as pb


async def filled(directory: Path, rows: int, size: int) -> RocksEngine:
    engine = await RocksEngine.open(directory)
    for number in range(rows):
        tx = engine.begin()
        tx.set(b"%05d" % number, bytes(size))
        await tx.commit()
    return engine


async def test_pages_are_bounded_and_of_one_moment(tmp_path: Path) -> None:
    engine = await filled(tmp_path / "kv", 100, 60_000)
    source = BackupSource(engine)
    page = await source.read_snapshot(pb.ReadSnapshotRequest())
    tx = engine.begin()
    tx.set(b"00099", b"later")
    await tx.commit()
    pairs = list(page.pairs)
    while page.more:
        assert page.ByteSize() < 8 << 20
        request = pb.ReadSnapshotRequest(snapshot=page.snapshot, after=pairs[-1].key, begun=True)
        page = await source.read_snapshot(request)
        pairs += page.pairs
    assert [pair.key for pair in pairs] == [b"%05d" % number for number in range(100)]
    assert all(len(pair.value) == 60_000 for pair in pairs)
    assert page.sequence <= engine.table.durable_change, "a crash cannot give its number to another change"
    await source.close()
    await engine.close()


async def test_snapshots_that_were_read_to_their_end_give_way(tmp_path: Path) -> None:
    engine = await filled(tmp_path / "kv", 3, 10)
    source = BackupSource(engine, clock=SteppedClock())
    for _ in range(9):
        page = await source.read_snapshot(pb.ReadSnapshotRequest())
        assert not page.more
    again = pb.ReadSnapshotRequest(snapshot=page.snapshot, after=b"", begun=True)
    assert not (await source.read_snapshot(again)).more, "the answer was lost"
    await source.close()
    await engine.close()


async def test_snapshots_are_few_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_source, "_FORGET_S", 0.05)
    engine = await filled(tmp_path / "kv", 40, 60_000)
    clock = SteppedClock()
    source = BackupSource(engine, clock=clock)
    pages = [await source.read_snapshot(pb.ReadSnapshotRequest()) for _ in range(4)]
    with pytest.raises(Overloaded, match="4 snapshots"):
        await source.read_snapshot(pb.ReadSnapshotRequest())
    clock.advance(0.06)
    await asyncio.sleep(0.1)
    assert not source._snapshots, "without anybody asking"
    with pytest.raises(NotFound, match="take a new one"):
        await source.read_snapshot(pb.ReadSnapshotRequest(snapshot=pages[0].snapshot))
    await source.close()
    await engine.close()


async def test_a_log_of_another_store_is_refused(tmp_path: Path) -> None:
    engine = await filled(tmp_path / "kv", 3, 10)
    source = BackupSource(engine)
    page = await source.read_snapshot(pb.ReadSnapshotRequest())
    reply = await source.read_log(pb.ReadLogRequest(lineage=page.lineage, after=page.sequence))
    assert not reply.more and not reply.writes
    with pytest.raises(TooOld, match="not the one that was backed up"):
        await source.read_log(pb.ReadLogRequest(lineage="other", after=page.sequence))
    with pytest.raises(TooOld, match="older copy"):
        await source.read_log(pb.ReadLogRequest(lineage=page.lineage, after=page.sequence + 1))
    await source.close()
    await engine.close()


async def test_a_store_that_may_be_another_one_is_given_to_nobody(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise Unavailable("it may be a copy")

    engine = await filled(tmp_path / "kv", 3, 10)
    source = BackupSource(engine, wait_admitted=refuse)
    with pytest.raises(Unavailable, match="it may be a copy"):
        await source.read_snapshot(pb.ReadSnapshotRequest())
    with pytest.raises(Unavailable, match="it may be a copy"):
        await source.read_log(pb.ReadLogRequest())
    await source.close()
    await engine.close()


async def test_a_store_that_is_not_embedded_says_how_it_is_backed_up() -> None:
    source = BackupSource(MemoryEngine())
    with pytest.raises(NotSupported, match="etcd or PostgreSQL, or with `threefs meta dump --engine URL`"):
        await source.read_snapshot(pb.ReadSnapshotRequest())
    with pytest.raises(NotSupported):
        await source.read_log(pb.ReadLogRequest())
    await source.close()
