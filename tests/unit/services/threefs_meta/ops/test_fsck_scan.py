import pytest
from threefs_meta.ops.fsck_scan import MAX_WANTED, fsck_scan
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench
from threefs.errors import InvalidArgument
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def pages(
    bench: MetaBench, table: pb.FsckTable, limit: int, wanted: list[int] | None = None
) -> list[pb.FsckScanReply]:
    found, after, more = [], b"", True
    while more:
        request = pb.FsckScanRequest(table=table, after=after, limit=limit, wanted=wanted)
        page = await fsck_scan(bench.context, request)
        found.append(page)
        after, more = page.after, page.more
    return found


async def test_pages_are_the_table(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    for name in "abcde":
        await bench.create(f"/d/{name}", session=SESSION)
    await bench.link("/d/a", "/d/z")
    await bench.remove("/d/b")
    for limit in (1, 2, 3, 100):
        rows = [inode for page in await pages(bench, pb.FSCK_INODES, limit) for inode in page.inode]
        assert rows == [1, 2, 3, 4, 5, 6, 7]
        assert sum(len(page.inode) for page in await pages(bench, pb.FSCK_ENTRIES, limit)) == 6
        assert [row for page in await pages(bench, pb.FSCK_QUEUE, limit) for row in page.inode] == [4]
        attached = await pages(bench, pb.FSCK_ATTACHED, limit)
        # Sessions; times of the root and of /d, the count of /d; a lease and its renewal; results of changes.
        assert sum(page.rows for page in attached) == 5 + 3 + 2 + 8
        assert not any(page.suspects for page in attached)
    (page,) = await pages(bench, pb.FSCK_INODES, 100)
    assert list(page.nlink) == [1, 1, 2, 0, 1, 1, 1]
    assert list(page.parent) == [ROOT, ROOT, 0, 0, 0, 0, 0]


async def test_names_and_queue_keys_that_are_wanted(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode
    await bench.link("/a", "/b")
    gone = (await bench.create("/c")).inode.inode
    await bench.remove("/c")
    (page,) = await pages(bench, pb.FSCK_ENTRIES, 100, [inode, 99])
    assert [(name.inode, name.parent, name.name) for name in page.names] == [
        (inode, ROOT, b"a"),
        (inode, ROOT, b"b"),
    ]
    (page,) = await pages(bench, pb.FSCK_QUEUE, 100, [gone])
    assert [subject.inode for subject in page.suspects] == [gone]
    (page,) = await pages(bench, pb.FSCK_QUEUE, 100)
    assert not page.suspects


async def test_suspects(bench: MetaBench) -> None:
    await damage.put_entry(bench, ROOT, b"x", 99, pb.FILE)
    (page,) = await pages(bench, pb.FSCK_ENTRIES, 100)
    assert len(page.suspects) == 1
    await damage.drop_entry(bench, ROOT, b"x")


async def test_records_of_the_trash_are_read(bench: MetaBench) -> None:
    await bench.set_trash("/", 1000)
    await bench.create("/a")
    await bench.remove("/a")
    (page,) = await pages(bench, pb.FSCK_QUEUE, 100)
    assert page.rows == 1 and not page.suspects
    ((key, value),) = await bench.engine.begin().get_range(*keys.TRASH)
    await damage.put(bench, key, value[:-1])
    (page,) = await pages(bench, pb.FSCK_QUEUE, 100)
    assert [subject.key for subject in page.suspects] == [key]
    await damage.put(bench, key, value)


async def test_limits(bench: MetaBench) -> None:
    with pytest.raises(InvalidArgument, match="table"):
        await fsck_scan(bench.context, pb.FsckScanRequest())
    with pytest.raises(InvalidArgument, match="at most"):
        await fsck_scan(bench.context, pb.FsckScanRequest(table=pb.FSCK_QUEUE, wanted=[1] * (MAX_WANTED + 1)))
