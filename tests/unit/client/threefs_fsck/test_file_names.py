"""The paths of files by their inode numbers."""

from threefs_fsck import file_names

from tests.harness.fsck import LocalMeta
from tests.harness.meta_harness import MetaBench
from threefs.wire import meta_pb2 as pb


async def test_each_name_has_its_path_and_what_is_gone_has_none(bench: MetaBench) -> None:
    meta = LocalMeta(bench.context)
    await bench.mkdir("/d")
    await bench.mkdir("/d/e")
    inode = (await bench.create("/d/e/file")).inode.inode
    await bench.link("/d/e/file", "/other")
    found = [name async for name in file_names.names(meta, [inode, 1 << 40])]
    assert sorted([await file_names.path_of(meta, name) for name in found]) == ["/d/e/file", "/other"]
    assert [one.inode for one in await file_names.readable_inodes(meta, [inode, 1 << 40])] == [inode]
    assert await file_names.readable_inodes(meta, []) == []
    lost = pb.FsckName(inode=inode, parent=1 << 40, name=b"file")
    assert await file_names.path_of(meta, lost) == f"/(directory {1 << 40})/file"
