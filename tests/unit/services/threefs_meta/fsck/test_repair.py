"""Where mending finds no way. The rest is tested in tests/unit/client/threefs_fsck/test_metadata.py."""

import pytest
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.fsck import LocalMeta, check_metadata
from tests.harness.meta_harness import MetaBench
from threefs.errors import NotFound
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def test_lost_and_found_is_taken_by_a_file(bench: MetaBench) -> None:
    await bench.create("/lost+found")
    inode = (await bench.create("/a")).inode
    await damage.drop_entry(bench, ROOT, b"a")
    meta = LocalMeta(bench.context)
    found = await check_metadata(meta, repair=True)
    assert found.exit_code == 4
    assert "/lost+found is not a directory" in found.findings[0].detail
    await bench.remove("/lost+found")
    assert (await check_metadata(meta, repair=True)).exit_code == 1
    assert await bench.names("/lost+found") == [f"#{inode.inode}"]


async def test_names_in_lost_and_found_that_are_taken(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode
    await bench.mkdir("/lost+found")
    for name in (f"#{inode.inode}", *(f"#{inode.inode}.{number}" for number in range(1, 14))):
        await bench.create(f"/lost+found/{name}")
    await damage.drop_entry(bench, ROOT, b"a")
    meta = LocalMeta(bench.context)
    assert (await check_metadata(meta, repair=True)).exit_code == 1
    await bench.create("/b")
    await bench.rename(f"/lost+found/#{inode.inode}.14", "/a")
    await bench.rename("/b", f"/lost+found/#{inode.inode}.14")
    await damage.drop_entry(bench, ROOT, b"a")
    found = await check_metadata(meta, repair=True)
    assert found.exit_code == 4 and "are taken" in found.findings[0].detail
    await damage.put_entry(bench, ROOT, b"a", inode.inode, inode.type)


async def test_lost_and_found_below_itself_gets_its_place_back(bench: MetaBench) -> None:
    directory = await bench.mkdir("/lost+found")
    directory.parent, directory.name = directory.inode, b"x"
    await damage.put_inode(bench, directory)
    await damage.put_entry(bench, directory.inode, b"x", directory.inode, directory.type)
    meta = LocalMeta(bench.context)
    for _ in range(3):
        found = await check_metadata(meta, repair=True)
    assert found.exit_code == 0, found
    assert (await bench.stat("/lost+found")).parent == ROOT


async def being_freed(bench: MetaBench, path: str) -> pb.Inode:
    """An entry names it, as after damage."""
    inode = (await bench.create(path, parents=True)).inode
    inode.nlink, inode.freed = 0, True
    await damage.put_inode(bench, inode)
    return inode


async def test_a_file_that_is_being_freed_gets_no_name_back(bench: MetaBench) -> None:
    """It was taken out of the queue, and read as zeros, without an error, where chunks of it were gone."""
    inode = await being_freed(bench, "/a")
    meta = LocalMeta(bench.context)
    found = await check_metadata(meta, repair=True)
    assert found.exit_code == 1
    assert [finding.kind for finding in found.findings] == ["dangling_entry", "not_queued"]
    assert "its bytes are lost" in found.findings[0].detail
    with pytest.raises(NotFound):
        await bench.stat("/a")
    await bench.collect_all()
    assert await damage.get(bench, keys.inode(inode.inode)) is None


async def test_a_file_that_is_being_freed_does_not_come_to_lost_and_found(bench: MetaBench) -> None:
    """The directory of its entry is gone."""
    inode = await being_freed(bench, "/d/a")
    await damage.drop_inode(bench, (await bench.stat("/d")).inode)
    meta = LocalMeta(bench.context)
    for _ in range(3):
        found = await check_metadata(meta, repair=True)
    assert found.exit_code == 0 and await bench.names("/") == []
    await bench.collect_all()
    assert await damage.get(bench, keys.inode(inode.inode)) is None
