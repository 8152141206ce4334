"""Inodes as they lie in replies are those that a look shows."""

import pytest
from threefs_meta.store import keys, serialized_inodes
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import MetaBench
from threefs.errors import Corrupt
from threefs.kv import records
from threefs.wire import meta_pb2 as pb


async def test_as_a_look_shows_them(bench: MetaBench) -> None:
    await bench.mkdir("/d/below", parents=True)
    await bench.symlink("x" * 4000, "/link")
    await bench.create("/file")

    async def work(ns: Namespace) -> None:
        for path in ("/d", "/link", "/file", "/"):
            wanted = await bench.stat(path, follow=False)
            key = keys.inode(wanted.inode)
            value = await ns.tx.get(key)
            assert value is not None
            body = records.body(value, key)
            assert serialized_inodes.is_plain(body) == (wanted.type != pb.DIRECTORY)
            assert pb.Inode.FromString(await serialized_inodes.with_times(ns, body, key)) == wanted

    await run_readonly(bench.context, work)


async def test_what_is_no_inode_is_corrupt_and_what_is_written_otherwise_is_taken_apart(bench: MetaBench) -> None:
    ns = Namespace(bench.engine.begin())
    assert not serialized_inodes.is_plain(b"")
    with pytest.raises(Corrupt, match="the-key"):
        await serialized_inodes.with_times(ns, b"\x08", b"the-key")
    swapped = pb.Inode(type=pb.FILE).SerializeToString() + pb.Inode(inode=5).SerializeToString()
    assert not serialized_inodes.is_plain(swapped)
    assert pb.Inode.FromString(await serialized_inodes.with_times(ns, swapped, b"k")) == pb.Inode(inode=5, type=pb.FILE)


async def test_what_entries_name_is_there_and_not_damaged(bench: MetaBench) -> None:
    found = [(await bench.create(f"/{name}")).inode for name in "ab"]
    ns = Namespace(bench.engine.begin())
    stored = await serialized_inodes.read_many(ns, [inode.inode for inode in found])
    assert [pb.Inode.FromString(stored[inode.inode]) for inode in found] == [
        await bench.stat("/a"),
        await bench.stat("/b"),
    ]
    key = keys.inode(found[0].inode)
    value = await ns.tx.get(key)
    assert value is not None
    for damaged, reason in ((value[:-1] + b"\xff", "checksum"), (None, "does not exist")):
        ns = Namespace(bench.engine.begin())
        if damaged is None:
            ns.tx.clear(key)
        else:
            ns.tx.set(key, damaged)
        with pytest.raises(Corrupt, match=reason):
            await serialized_inodes.read_many(ns, [inode.inode for inode in found])
