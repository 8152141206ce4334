"""Where mending finds no way. The rest is tested in tests/unit/client/threefs_fsck/test_metadata.py."""

from tests.harness import damage
from tests.harness.fsck import LocalMeta, check_metadata
from tests.harness.meta_harness import MetaBench
from threefs.ids import ROOT


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


async def test_a_file_that_was_being_freed_exists_again_with_its_name(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode
    inode.nlink, inode.freed = 0, True
    await damage.put_inode(bench, inode)
    meta = LocalMeta(bench.context)
    assert (await check_metadata(meta, repair=True)).exit_code == 1
    found = await bench.stat("/a")
    assert found.nlink == 1 and not found.freed
