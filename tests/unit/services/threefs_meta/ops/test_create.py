"""Creating files."""

import asyncio

import pytest
from threefs_meta.ops.create import create
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
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


async def test_a_new_file_is_there_empty_and_laid_out(bench: MetaBench) -> None:
    made = await bench.create("/a", mode=0o640)
    assert made.created and made.inode.type == pb.FILE and made.inode.nlink == 1 and made.inode.length == 0
    assert made.inode.mode == 0o640
    assert made.inode.layout.chunk_bytes == 1 << 20
    assert made.inode.layout.stripe == len(bench.cluster.routing.tables[1])  # type: ignore[index]
    assert await bench.stat("a") == made.inode
    again = await bench.create("//a/")
    assert not again.created and again.inode == made.inode


async def test_exclusive_parents_and_directories(bench: MetaBench) -> None:
    await bench.create("/a")
    with pytest.raises(AlreadyExists):
        await bench.create("/a", exclusive=True)
    with pytest.raises(NotFound):
        await bench.create("/x/y/z")
    await bench.create("/x/y/z", parents=True)
    assert await bench.names("/x/y") == ["z"]
    for directory in ("/x", "/", "/x/.", "/x/y/.."):
        with pytest.raises(IsADirectory):
            await bench.create(directory)
    with pytest.raises(NotADirectory):
        await bench.create("/a/b")
    with pytest.raises(NotFound):
        await bench.create("/new/../b", parents=True)


async def test_a_link_in_the_last_component_is_followed_unless_exclusive(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.symlink("d/file", "/link")
    with pytest.raises(AlreadyExists):
        await bench.create("/link", exclusive=True)
    made = await bench.create("/link")
    assert made.created and await bench.names("/d") == ["file"]
    await bench.symlink("loop", "/loop")
    with pytest.raises(TooManySymlinks):
        await bench.create("/loop")


async def test_creates_in_one_directory_do_not_conflict_and_do_not_write_the_parent(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    before = await bench.stat("/d")
    await bench.create("/d/first")  # has taken a block of inode numbers
    commits = bench.engine._history.version
    await asyncio.gather(*(bench.create(f"/d/{n}") for n in range(50)))
    assert bench.engine._history.version == commits + 50, "each in one transaction"
    assert bench.clock.monotonic() == 1000.0, "nobody had to pause and try again"
    tx = bench.engine.begin()
    assert await tx.get(keys.inode(before.inode)) is not None
    changed = {key for keys_of in bench.engine._history._commits[-50:] for key in keys_of}
    assert keys.inode(before.inode) not in changed


async def test_the_directory_shows_when_it_was_changed(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    before = await bench.stat("/d")
    bench.clock.advance(5)
    await bench.create("/d/a")
    after = await bench.stat("/d")
    assert after.mtime_ns == after.ctime_ns == before.mtime_ns + 5 * 10**9


async def test_layouts_are_inherited_and_checked(bench: MetaBench) -> None:
    await bench.mkdir("/d", layout=pb.Layout(chunk_bytes=MIN_CHUNK_BYTES))
    await bench.mkdir("/d/e")
    made = (await bench.create("/d/e/f", layout=pb.Layout(stripe=1))).inode
    assert (made.layout.chunk_bytes, made.layout.stripe) == (MIN_CHUNK_BYTES, 1)
    for layout in (pb.Layout(chunk_bytes=100_000), pb.Layout(stripe=3), pb.Layout(table_id=9)):
        with pytest.raises(InvalidArgument):
            await bench.create("/d/bad", layout=layout)
    assert await bench.names("/d") == ["e"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (b"/" + b"n" * 256, NameTooLong),
        (b"/d" * 2049, NameTooLong),
        (b"/a\0b", InvalidArgument),
        (b"/a\0b", InvalidArgument),
    ],
)
async def test_bad_names_are_refused(bench: MetaBench, path: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await create(bench.context, pb.CreateRequest(mutation=bench.mutation(), place=at(path)))
    assert await bench.names("/") == []


async def test_bad_arguments_are_refused(bench: MetaBench) -> None:
    good = pb.Mutation(client=CLIENT, request=99)
    for request in (
        pb.CreateRequest(place=at("/a")),
        pb.CreateRequest(mutation=pb.Mutation(client=b"short"), place=at("/a")),
        pb.CreateRequest(mutation=good, place=at("/a"), mode=0o10000),
        pb.CreateRequest(mutation=good, place=at("/a"), session=b"short"),
    ):
        with pytest.raises(InvalidArgument):
            await create(bench.context, request)
    with pytest.raises(NotFound):
        await create(bench.context, pb.CreateRequest(mutation=good, place=at("a", base=12345)))


async def test_truncate_frees_what_was_there(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.write(made, 0, b"x" * 100)
    await bench.close(made, SESSION, length_hint=100, written=True)
    assert (await bench.stat("/a")).length == 100
    again = await bench.create("/a", truncate=True)
    assert not again.created and again.inode.length == 0
    assert again.inode.truncate_version == made.truncate_version + 1
    assert bench.chunk_numbers(made) == []


async def test_sent_again_it_returns_the_first_result(bench: MetaBench) -> None:
    request = pb.CreateRequest(mutation=bench.mutation(), place=at("/a"), exclusive=True, session=SESSION)
    first = await create(bench.context, request)
    assert await create(bench.context, request) == first
    await bench.remove("/a")
    assert await create(bench.context, request) == first, "even when the world has moved on"
    assert await bench.names("/") == []


async def test_the_same_request_twice_at_once_makes_one_file(bench: MetaBench) -> None:
    request = pb.CreateRequest(mutation=bench.mutation(), place=at("/a"), exclusive=True)
    first, second = await asyncio.gather(create(bench.context, request), create(bench.context, request))
    assert first == second


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.trouble(conflict_rate=0.2, unknown_rate=0.2)
async def test_conflicts_and_unknown_commits_are_overcome(bench: MetaBench, seed: int) -> None:
    await asyncio.gather(*(bench.create(f"/{n}", exclusive=True) for n in range(40)))
    assert len(await bench.names("/")) == 40
