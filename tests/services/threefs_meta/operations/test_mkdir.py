"""Making directories."""

import asyncio

import pytest
from threefs_meta.operations.mkdir import mkdir

from tests.support.metadata import MetaBench, at, run
from threefs.errors import AlreadyExists, InvalidArgument, NotADirectory, NotFound
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


def test_one_and_those_above() -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.mkdir("/a")
        assert (made.type, made.nlink, made.parent, made.name) == (pb.DIRECTORY, 1, 1, b"a")
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
