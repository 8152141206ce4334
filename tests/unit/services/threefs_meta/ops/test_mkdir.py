"""Making directories."""

import asyncio

import pytest
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.store import namespace

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AlreadyExists, InvalidArgument, NotADirectory, NotFound
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


async def test_what_is_inherited_and_what_is_not(bench: MetaBench) -> None:
    await bench.mkdir("/d", mode=0o6777)
    assert (await bench.stat("/d")).mode == 0o777
    await bench.set("/d", mode=0o2777, gid=7)
    with bench.user(5, 6, 8):
        made = await bench.mkdir("/d/e", mode=0o1770, umask=0o027)
        assert (made.uid, made.gid, made.mode) == (5, 7, 0o3750)
        program = (await bench.create("/d/program", mode=0o2775, umask=0o002)).inode
        assert (program.uid, program.gid, program.mode) == (5, 7, 0o775), "not a member of that group"
        await bench.mkdir("/d/x/y", parents=True, mode=0o500, umask=0o777)
        assert [(await bench.stat(path)).mode for path in ("/d/x", "/d/x/y")] == [0o2300, 0o2000]
    with bench.user(5, 6, 7):
        assert (await bench.create("/d/other", mode=0o2775)).inode.mode == 0o2775
    await bench.set("/d", mode=0o777)
    with bench.user(5, 6):
        assert (await bench.mkdir("/d/plain")).gid == 6
        link = await bench.symlink("x", "/d/link")
        assert (link.uid, link.gid, link.mode) == (5, 6, 0o777)


async def test_a_directory_has_two_links_and_one_for_each_directory_in_it(bench: MetaBench) -> None:
    async def links(path: str) -> int:
        return (await bench.stat(path)).nlink

    await bench.mkdir("/d/a/b", parents=True)
    await bench.mkdir("/d/c")
    await bench.create("/d/file")
    assert [await links(path) for path in ("/", "/d", "/d/a", "/d/a/b")] == [3, 4, 3, 2]
    await bench.rename("/d/a/b", "/d/b")
    await bench.rename("/d/a", "/d/c")
    assert [await links(path) for path in ("/d", "/d/c")] == [4, 2]
    await bench.rename("/d/file", "/d/c", exchange=True)
    assert [await links(path) for path in ("/d", "/d/file")] == [4, 2]
    await bench.remove("/d/file")
    assert await links("/d") == 3
    await bench.remove("/d", recursive=True)
    assert await links("/") == 2


async def test_links_are_counted_up_to_a_limit(bench: MetaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "MAX_COUNTED", 3)
    counts = []
    for name in "abcd":
        await bench.mkdir(f"/{name}")
        counts.append((await bench.stat("/")).nlink)
    assert counts == [3, 4, 5, 1]


async def test_one_and_those_above(bench: MetaBench) -> None:
    made = await bench.mkdir("/a")
    assert (made.type, made.nlink, made.parent, made.name) == (pb.DIRECTORY, 2, 1, b"a")
    with pytest.raises(AlreadyExists):
        await bench.mkdir("/a")
    with pytest.raises(NotFound):
        await bench.mkdir("/x/y")
    await bench.mkdir("/x/y/./z", parents=True)
    assert (await bench.stat("/x/y/z")).name == b"z"
    again = await bench.mkdir("/x/y", parents=True)
    assert again == await bench.stat("/x/y")
    assert (await bench.mkdir("/", parents=True)).inode == 1
    with pytest.raises(AlreadyExists):
        await bench.mkdir("/")


async def test_obstacles_of_a_mkdir(bench: MetaBench) -> None:
    await bench.create("/file")
    await bench.symlink("gone", "/dangling")
    for parents in (False, True):
        with pytest.raises(AlreadyExists):
            await bench.mkdir("/file", parents=parents)
        with pytest.raises(NotADirectory):
            await bench.mkdir("/file/x", parents=parents)
    with pytest.raises(AlreadyExists):
        await bench.mkdir("/dangling")


async def test_with_a_layout_that_is_handed_down(bench: MetaBench) -> None:
    await bench.mkdir("/a", layout=pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=2))
    inner = await bench.mkdir("/a/b/c", parents=True, layout=pb.Layout(stripe=1))
    assert inner.layout == pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=1)
    assert (await bench.stat("/a/b")).layout == pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=2)
    assert (await bench.create("/a/b/f")).inode.layout.stripe == 2
    with pytest.raises(InvalidArgument):
        await bench.mkdir("/bad", layout=pb.Layout(chunk_bytes=3))
    assert await bench.names("/") == ["a"]


async def test_bad_modes(bench: MetaBench) -> None:
    with pytest.raises(InvalidArgument):
        await mkdir(bench.context, pb.MkdirRequest(mutation=bench.mutation(), place=at("/a"), mode=1 << 31))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_a_directory_is_removed_while_others_fill_it(bench: MetaBench, seed: int) -> None:
    for _ in range(10):
        await bench.mkdir("/d", parents=True)
        results = await asyncio.gather(
            bench.remove("/d"),
            bench.mkdir("/d/a"),
            bench.create("/d/b"),
            bench.symlink("x", "/d/c"),
            return_exceptions=True,
        )
        removed = results[0] is None
        made = [result for result in results[1:] if not isinstance(result, BaseException)]
        assert not (removed and made), "what was made is lost"
        await bench.audit()
