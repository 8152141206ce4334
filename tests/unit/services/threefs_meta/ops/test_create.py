"""Creating files."""

import asyncio

import pytest
from threefs_meta.ops.create import create
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at, run
from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotFound,
    TooManySymlinks,
)
from threefs.layout import MIN_CHUNK_BYTES
from threefs.wire import meta_pb2 as pb


def test_a_new_file_is_there_empty_and_laid_out() -> None:
    async def test(fs: MetaBench) -> None:
        made = await fs.create("/a", mode=0o640)
        assert made.created and made.inode.type == pb.FILE and made.inode.nlink == 1 and made.inode.length == 0
        assert made.inode.mode == 0o640
        assert made.inode.layout.chunk_bytes == 1 << 20
        assert made.inode.layout.stripe == len(fs.cluster.routing.tables[1])  # type: ignore[index]
        assert await fs.stat("a") == made.inode
        again = await fs.create("//a/")
        assert not again.created and again.inode == made.inode

    run(test)


def test_exclusive_parents_and_directories() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        with pytest.raises(AlreadyExists):
            await fs.create("/a", exclusive=True)
        with pytest.raises(NotFound):
            await fs.create("/x/y/z")
        await fs.create("/x/y/z", parents=True)
        assert await fs.names("/x/y") == ["z"]
        for directory in ("/x", "/", "/x/.", "/x/y/.."):
            with pytest.raises(IsADirectory):
                await fs.create(directory)
        with pytest.raises(NotADirectory):
            await fs.create("/a/b")
        with pytest.raises(NotFound):
            await fs.create("/new/../b", parents=True)

    run(test)


def test_a_link_in_the_last_component_is_followed_unless_exclusive() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        await fs.symlink("d/file", "/link")
        with pytest.raises(AlreadyExists):
            await fs.create("/link", exclusive=True)
        made = await fs.create("/link")
        assert made.created and await fs.names("/d") == ["file"]
        await fs.symlink("loop", "/loop")
        with pytest.raises(TooManySymlinks):
            await fs.create("/loop")

    run(test)


def test_creates_in_one_directory_do_not_conflict_and_do_not_write_the_parent() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        before = await fs.stat("/d")
        await fs.create("/d/first")  # has taken a block of inode numbers
        commits = fs.engine._history.version
        await asyncio.gather(*(fs.create(f"/d/{n}") for n in range(50)))
        assert fs.engine._history.version == commits + 50, "each in one transaction"
        assert fs.clock.monotonic() == 1000.0, "nobody had to pause and try again"
        tx = fs.engine.begin()
        assert await tx.get(keys.inode(before.inode)) is not None
        changed = {key for keys_of in fs.engine._history._commits[-50:] for key in keys_of}
        assert keys.inode(before.inode) not in changed

    run(test)


def test_the_directory_shows_when_it_was_changed() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        before = await fs.stat("/d")
        fs.clock.advance(5)
        await fs.create("/d/a")
        after = await fs.stat("/d")
        assert after.mtime_ns == after.ctime_ns == before.mtime_ns + 5 * 10**9

    run(test)


def test_layouts_are_inherited_and_checked() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d", layout=pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
        await fs.mkdir("/d/e")
        made = (await fs.create("/d/e/f", layout=pb.Layout(stripe=1))).inode
        assert (made.layout.chunk_bytes, made.layout.stripe) == (MIN_CHUNK_BYTES, 1)
        for layout in (pb.Layout(chunk_bytes=100_000), pb.Layout(stripe=3), pb.Layout(table_id=9)):
            with pytest.raises(InvalidArgument):
                await fs.create("/d/bad", layout=layout)
        assert await fs.names("/d") == ["e"]

    run(test)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (b"/" + b"n" * 256, NameTooLong),
        (b"/d" * 2049, NameTooLong),
        (b"/a\0b", InvalidArgument),
        (b"/a\0b", InvalidArgument),
    ],
)
def test_bad_names_are_refused(path: bytes, error: type[Exception]) -> None:
    async def test(fs: MetaBench) -> None:
        with pytest.raises(error):
            await create(fs.context, pb.CreateRequest(mutation=fs.mutation(), place=at(path)))
        assert await fs.names("/") == []

    run(test)


def test_bad_arguments_are_refused() -> None:
    async def test(fs: MetaBench) -> None:
        good = pb.Mutation(client=CLIENT, request=99)
        for request in (
            pb.CreateRequest(place=at("/a")),
            pb.CreateRequest(mutation=pb.Mutation(client=b"short"), place=at("/a")),
            pb.CreateRequest(mutation=good, place=at("/a"), mode=0o10000),
            pb.CreateRequest(mutation=good, place=at("/a"), session=b"short"),
        ):
            with pytest.raises(InvalidArgument):
                await create(fs.context, request)
        with pytest.raises(NotFound):
            await create(fs.context, pb.CreateRequest(mutation=good, place=at("a", base=12345)))

    run(test)


def test_truncate_frees_what_was_there() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.write(made, 0, b"x" * 100)
        await fs.close(made, SESSION, length_hint=100, written=True)
        assert (await fs.stat("/a")).length == 100
        again = await fs.create("/a", truncate=True)
        assert not again.created and again.inode.length == 0
        assert again.inode.truncate_version == made.truncate_version + 1
        assert fs.chunk_numbers(made) == []

    run(test)


def test_sent_again_it_returns_the_first_result() -> None:
    async def test(fs: MetaBench) -> None:
        request = pb.CreateRequest(mutation=fs.mutation(), place=at("/a"), exclusive=True, session=SESSION)
        first = await create(fs.context, request)
        assert await create(fs.context, request) == first
        await fs.remove("/a")
        assert await create(fs.context, request) == first, "even when the world has moved on"
        assert await fs.names("/") == []

    run(test)


def test_the_same_request_twice_at_once_makes_one_file() -> None:
    async def test(fs: MetaBench) -> None:
        request = pb.CreateRequest(mutation=fs.mutation(), place=at("/a"), exclusive=True)
        first, second = await asyncio.gather(create(fs.context, request), create(fs.context, request))
        assert first == second

    run(test)


@pytest.mark.parametrize("seed", range(5))
def test_conflicts_and_unknown_commits_are_overcome(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await asyncio.gather(*(fs.create(f"/{n}", exclusive=True) for n in range(40)))
        assert len(await fs.names("/")) == 40

    run(test, conflict_rate=0.2, unknown_rate=0.2, seed=seed)
