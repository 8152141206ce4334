"""Making directories."""

import asyncio

import pytest
from threefs_meta.ops.mkdir import mkdir
from threefs_meta.store import namespace

from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import AlreadyExists, InvalidArgument, NotADirectory, NotFound
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


def test_what_is_inherited_and_what_is_not() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d", mode=0o6777)
        assert (await fs.stat("/d")).mode == 0o777
        await fs.set("/d", mode=0o2777, gid=7)
        with fs.user(5, 6, 8):
            made = await fs.mkdir("/d/e", mode=0o1770, umask=0o027)
            assert (made.uid, made.gid, made.mode) == (5, 7, 0o3750)
            program = (await fs.create("/d/program", mode=0o2775, umask=0o002)).inode
            assert (program.uid, program.gid, program.mode) == (5, 7, 0o775), "not a member of that group"
            await fs.mkdir("/d/x/y", parents=True, mode=0o500, umask=0o777)
            assert [(await fs.stat(path)).mode for path in ("/d/x", "/d/x/y")] == [0o2300, 0o2000]
        with fs.user(5, 6, 7):
            assert (await fs.create("/d/other", mode=0o2775)).inode.mode == 0o2775
        await fs.set("/d", mode=0o777)
        with fs.user(5, 6):
            assert (await fs.mkdir("/d/plain")).gid == 6
            link = await fs.symlink("x", "/d/link")
            assert (link.uid, link.gid, link.mode) == (5, 6, 0o777)

    run(test)


def test_a_directory_has_two_links_and_one_for_each_directory_in_it() -> None:
    async def test(fs: MetaBench) -> None:
        async def links(path: str) -> int:
            return (await fs.stat(path)).nlink

        await fs.mkdir("/d/a/b", parents=True)
        await fs.mkdir("/d/c")
        await fs.create("/d/file")
        assert [await links(path) for path in ("/", "/d", "/d/a", "/d/a/b")] == [3, 4, 3, 2]
        await fs.rename("/d/a/b", "/d/b")
        await fs.rename("/d/a", "/d/c")
        assert [await links(path) for path in ("/d", "/d/c")] == [4, 2]
        await fs.rename("/d/file", "/d/c", exchange=True)
        assert [await links(path) for path in ("/d", "/d/file")] == [4, 2]
        await fs.remove("/d/file")
        assert await links("/d") == 3
        await fs.remove("/d", recursive=True)
        assert await links("/") == 2

    run(test)


def test_links_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "MOST_COUNTED", 3)

    async def test(fs: MetaBench) -> None:
        counts = []
        for name in "abcd":
            await fs.mkdir(f"/{name}")
            counts.append((await fs.stat("/")).nlink)
        assert counts == [3, 4, 5, 1]

    run(test)


def test_one_and_those_above() -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.mkdir("/a")
        assert (made.type, made.nlink, made.parent, made.name) == (pb.DIRECTORY, 2, 1, b"a")
        with pytest.raises(AlreadyExists):
            await fs.mkdir("/a")
        with pytest.raises(NotFound):
            await fs.mkdir("/x/y")
        await fs.mkdir("/x/y/./z", parents=True)
        assert (await fs.stat("/x/y/z")).name == b"z"
        again = await fs.mkdir("/x/y", parents=True)
        assert again == await fs.stat("/x/y")
        assert (await fs.mkdir("/", parents=True)).inode == 1
        with pytest.raises(AlreadyExists):
            await fs.mkdir("/")

    run(test)


def test_what_stands_in_the_way() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/file")
        await fs.symlink("gone", "/dangling")
        for parents in (False, True):
            with pytest.raises(AlreadyExists):
                await fs.mkdir("/file", parents=parents)
            with pytest.raises(NotADirectory):
                await fs.mkdir("/file/x", parents=parents)
        with pytest.raises(AlreadyExists):
            await fs.mkdir("/dangling")

    run(test)


def test_with_a_layout_that_is_handed_down() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a", layout=pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=2))
        inner = await fs.mkdir("/a/b/c", parents=True, layout=pb.Layout(stripe=1))
        assert inner.layout == pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=1)
        assert (await fs.stat("/a/b")).layout == pb.Layout(chunk_bytes=MIN_CHUNK_BYTES, stripe=2)
        assert (await fs.create("/a/b/f")).inode.layout.stripe == 2
        with pytest.raises(InvalidArgument):
            await fs.mkdir("/bad", layout=pb.Layout(chunk_bytes=3))
        assert await fs.names("/") == ["a"]

    run(test)


def test_bad_modes() -> None:
    async def test(fs: MetaBench) -> None:
        with pytest.raises(InvalidArgument):
            await mkdir(fs.context, pb.MkdirRequest(mutation=fs.mutation(), place=at("/a"), mode=1 << 31))

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_directory_is_removed_while_others_fill_it(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        for _ in range(10):
            await fs.mkdir("/d", parents=True)
            results = await asyncio.gather(
                fs.remove("/d"), fs.mkdir("/d/a"), fs.create("/d/b"), fs.symlink("x", "/d/c"), return_exceptions=True
            )
            removed = results[0] is None
            made = [result for result in results[1:] if not isinstance(result, BaseException)]
            assert not (removed and made), "what was made is lost"
            await fs.audit()

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)
