"""Pages of a directory as columns, and the token that says whether they are known."""

import pytest
from threefs_meta.ops.list import MAX_ENTRIES
from threefs_meta.ops.list_names import list_names
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.entry_codec import Entry

from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument, NotADirectory, NotFound
from threefs.ids import ROOT
from threefs.wire import meta_pb2 as pb


async def page(fs: MetaBench, path: str, after: bytes = b"", limit: int = 0, known: int = 0) -> pb.ListNamesReply:
    number = (await fs.stat(path)).inode
    request = pb.ListNamesRequest(directory=number, after=after, limit=limit, known=known, attributes_up_to=3)
    return await list_names(fs.context, request)


async def test_pages_are_those_of_list(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    await bench.symlink("x", "/d/link")
    for number in range(20):
        await bench.create(f"/d/{number:02}")
    names, inodes, types, after, more = b"", b"", b"", b"", True
    while more:
        found = await page(bench, "/d", after, 7)
        assert 0 < len(found.types) <= 7 and not found.attributes and not found.unchanged
        names, inodes, types = names + found.names, inodes + found.inodes, types + found.types
        after, more = found.names.split(b"\0")[-2], found.more
    plain = [await bench.stat(f"/d/{name.decode()}", follow=False) for name in names.split(b"\0")[:-1]]
    assert names.split(b"\0")[:-1] == [name.encode() for name in await bench.names("/d")]
    assert inodes == b"".join(inode.inode.to_bytes(8, "little") for inode in plain)
    assert types == bytes(inode.type for inode in plain)


async def test_few_entries_come_with_attributes(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    await bench.create("/d/sub/below")
    await bench.create("/d/a")
    found = await page(bench, "/d")
    shown = [pb.Inode.FromString(one) for one in found.attributes]
    assert shown == [await bench.stat("/d/a"), await bench.stat("/d/sub")]
    assert not (await page(bench, "/d", b"a")).attributes and not (await page(bench, "/d", limit=1)).attributes
    await bench.create("/d/b")
    assert (await page(bench, "/d")).attributes
    await bench.create("/d/c")
    assert not (await page(bench, "/d")).attributes


async def test_attributes_come_with_entries_that_are_known(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    await bench.create("/d/a")
    first = await page(bench, "/d")
    for mode in (0o600, 0o640):
        await bench.set("/d/a", mode=mode)
        again = await page(bench, "/d", known=first.token)
        assert again.unchanged and again.token == first.token and not (again.names or again.inodes or again.types)
        shown = [pb.Inode.FromString(one) for one in again.attributes]
        assert shown == [await bench.stat("/d/a"), await bench.stat("/d/sub")] and shown[0].mode == mode
    await bench.create("/d/b")
    await bench.create("/d/c")
    large = await page(bench, "/d")
    again = await page(bench, "/d", known=large.token)
    assert again.unchanged and not again.attributes and not again.names


async def test_entries_are_read_once_as_long_as_none_changes(bench: MetaBench) -> None:
    """And by whom it is asked does not matter."""
    await bench.create("/a")
    first = await page(bench, "/")
    row = keys.entry(ROOT, b"a")
    tx = bench.context.engine.begin()
    stored = await tx.get(row)
    tx.clear(row)  # behind the back of the directory
    await tx.commit()
    assert await page(bench, "/") == first and (await page(bench, "/", known=first.token)).attributes
    assert not (await page(bench, "/", b"\0")).names  # only whole directories are kept
    await bench.create("/b")
    assert (await page(bench, "/")).names == b"b\0"
    assert stored is not None
    tx = bench.context.engine.begin()
    tx.set(row, stored)
    await tx.commit()


async def test_what_is_kept_is_not_more_than_was_asked_for(bench: MetaBench) -> None:
    for name in "abc":
        await bench.create(f"/{name}")
    assert (await page(bench, "/")).names == b"a\0b\0c\0"
    found = await page(bench, "/", limit=2)
    assert found.names == b"a\0b\0" and found.more and not found.attributes
    await bench.create("/d")
    assert (await page(bench, "/", limit=2)).more  # and what was asked for is not kept as all there is
    assert (await page(bench, "/")).names == b"a\0b\0c\0d\0"


async def test_entries_of_a_directory_without_a_token_are_read_each_time(bench: MetaBench) -> None:
    """Nothing tells when they change."""
    number = (await bench.mkdir("/d")).inode
    file = (await bench.create("/a")).inode
    for name in (b"x", b"y"):
        tx = bench.context.engine.begin()
        tx.set(keys.entry(number, name), entry_codec.encode(Entry(file.inode, file.type)))
        await tx.commit()
        found = await page(bench, "/d")
        assert not found.token and found.names.endswith(name + b"\0")
    tx = bench.context.engine.begin()
    tx.clear(keys.entry(number, b"x"))
    tx.clear(keys.entry(number, b"y"))
    await tx.commit()


async def test_attributes_need_the_permission_to_search_the_directory(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.create("/d/a")
    number = (await bench.stat("/d")).inode
    for mode, allowed in ((0o744, False), (0o755, True)):
        await bench.set("/d", mode=mode)
        caller = pb.Caller(uid=1000, gid=1000)
        request = pb.ListNamesRequest(directory=number, attributes_up_to=3, caller=caller)
        found = await list_names(bench.context, request)
        assert found.names == b"a\0" and bool(found.attributes) == allowed


async def test_another_token_with_every_change_of_an_entry(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    await bench.mkdir("/e")
    seen: set[int] = set()

    async def changed(path: str = "/d") -> None:
        token = (await page(bench, path)).token
        assert token and token not in seen
        seen.add(token)
        again = await page(bench, path, known=token)
        assert again.unchanged and again.token == token and not again.names and not again.types

    await changed()
    file = await bench.create("/d/a")
    await changed()
    await bench.set("/d/a", mode=0o600)
    await bench.truncate("/d/a", 5)
    await bench.close(file.inode)
    await bench.mkdir("/d/sub/below")
    assert (await page(bench, "/d")).token in seen
    await bench.link("/d/a", "/d/b")
    await changed()
    await bench.symlink("x", "/d/s")
    await changed()
    await bench.mknod("/d/p", pb.FIFO)
    await changed()
    await bench.rename("/d/b", "/d/c")
    await changed()
    await bench.rename("/d/c", "/e/c")
    await changed()
    await changed("/e")
    await bench.create("/e/x")
    await changed("/e")
    await bench.rename("/d/a", "/e/x", exchange=True)
    await changed()
    await changed("/e")
    await bench.remove("/d/s")
    await changed()
    await bench.remove("/d/sub", recursive=True)
    await changed()
    await bench.remove("/e/x")
    await changed("/e")
    await bench.set_trash("/d", 60)
    await bench.remove("/d/p")
    await changed()
    await changed("/.trash/0")


async def test_an_empty_directory_has_a_token_once_it_had_an_entry(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert not (await page(bench, "/d")).token and not (await page(bench, "/d", known=0)).unchanged
    await bench.create("/d/a")
    await bench.remove("/d/a")
    found = await page(bench, "/d")
    assert found.token and not found.names and not found.more


async def test_limits_and_errors(bench: MetaBench) -> None:
    file = await bench.create("/a")
    found = await list_names(bench.context, pb.ListNamesRequest(directory=ROOT, limit=MAX_ENTRIES * 1000))
    assert found.names == b"a\0" and not found.more
    for directory, after, error in (
        (file.inode.inode, b"", NotADirectory),
        (12345, b"", NotFound),
        (ROOT, b"n" * 256, InvalidArgument),
    ):
        with pytest.raises(error):
            await list_names(bench.context, pb.ListNamesRequest(directory=directory, after=after))
