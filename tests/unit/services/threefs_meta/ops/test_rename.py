"""Renaming."""

import asyncio

import pytest
from threefs_meta.ops.rename import rename

from tests.harness.meta_harness import SESSION, MetaBench, at, run
from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotADirectory, NotEmpty, NotFound
from threefs.wire import meta_pb2 as pb


def test_to_another_place() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b/c", parents=True)
        await fs.mkdir("/x")
        file = (await fs.create("/a/f")).inode
        assert (await fs.rename("/a/f", "/x/g")).inode == file.inode
        moved = await fs.rename("/a/b", "/x/b2")
        assert (moved.name, moved.parent) == (b"b2", (await fs.stat("/x")).inode)
        assert await fs.names("/x") == ["b2", "g"] and await fs.names("/a") == []
        assert (await fs.stat("/x/b2/c/../..")).name == b"x"
        await fs.rename("/x/g", "/x/h")
        assert await fs.names("/x") == ["b2", "h"]

    run(test)


def test_replacing() -> None:
    async def test(fs: MetaBench) -> None:
        one, two = (await fs.create("/one")).inode, (await fs.create("/two", session=SESSION)).inode
        await fs.write(two, 0, b"data")
        await fs.close(two, SESSION, length_hint=4)
        with pytest.raises(AlreadyExists):
            await fs.rename("/one", "/two", no_replace=True)
        await fs.rename("/one", "/two")
        assert (await fs.stat("/two")).inode == one.inode
        await fs.collect_all()
        assert fs.chunk_numbers(two) == []
        await fs.symlink("two", "/link")
        await fs.rename("/link", "/two")
        assert (await fs.stat("/two", follow=False)).type == pb.SYMLINK
        await fs.mkdir("/d/full", parents=True)
        empty = await fs.mkdir("/e")
        with pytest.raises(NotEmpty):
            await fs.rename("/e", "/d")
        request = pb.RenameRequest(mutation=fs.mutation(), source=at("/d"), destination=at("/e"), caller=fs.caller)
        assert (await rename(fs.context, request)).replaced.inode == empty.inode  # for who still works in it
        assert await fs.names("/") == ["e", "two"]

    run(test)


def test_kinds_do_not_mix() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        await fs.create("/f")
        with pytest.raises(NotADirectory):
            await fs.rename("/d", "/f")
        with pytest.raises(IsADirectory):
            await fs.rename("/f", "/d")
        with pytest.raises(NotADirectory):
            await fs.rename("/d", "/f/x")

    run(test)


def test_onto_itself_or_another_name_of_the_file_does_nothing() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.link("/a", "/b")
        await fs.mkdir("/d")
        for source, target in (("/a", "/a"), ("/a", "/b"), ("/d", "/d")):
            await fs.rename(source, target)
        assert await fs.names("/") == ["a", "b", "d"]

    run(test)


def test_below_itself_or_from_and_to_nowhere() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b/c", parents=True)
        for target in ("/a/x", "/a/b/x", "/a/b/c/x"):
            with pytest.raises(InvalidArgument):
                await fs.rename("/a", target)
        with pytest.raises(NotEmpty):
            await fs.rename("/a/b", "/a")
        for source, target, error in (
            ("/gone", "/x", NotFound),
            ("/a", "/gone/x", NotFound),
            ("/", "/x", InvalidArgument),
            ("/a", "/", InvalidArgument),
            ("/a/.", "/x", InvalidArgument),
            ("/a", "/a/..", InvalidArgument),
        ):
            with pytest.raises(error):
                await fs.rename(source, target)

    run(test)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by_inode", [False, True])
def test_two_moves_at_once_make_no_loop(seed: int, by_inode: bool) -> None:
    async def test(fs: MetaBench) -> None:
        a2 = await fs.mkdir("/a/a2", parents=True)
        b2 = await fs.mkdir("/b/b2", parents=True)
        into_b2 = at("a", b2.inode) if by_inode else at("/b/b2/a")
        into_a2 = at("b", a2.inode) if by_inode else at("/a/a2/b")
        requests = [
            pb.RenameRequest(mutation=fs.mutation(), source=at("/a"), destination=into_b2),
            pb.RenameRequest(mutation=fs.mutation(), source=at("/b"), destination=into_a2),
        ]
        results = await asyncio.gather(*(rename(fs.context, r) for r in requests), return_exceptions=True)
        assert sum(isinstance(result, pb.InodeReply) for result in results) == 1
        await fs.audit()

    run(test, seed=seed)


def test_two_entries_change_places() -> None:
    async def test(fs: MetaBench) -> None:
        inner = await fs.mkdir("/d/inner", parents=True)
        await fs.create("/d/inner/deep")
        file = (await fs.create("/file")).inode
        await fs.rename("/file", "/d/inner", exchange=True)
        assert (await fs.stat("/d/inner")).inode == file.inode
        moved = await fs.stat("/file")
        assert (moved.inode, moved.parent, moved.name) == (inner.inode, 1, b"file")
        assert await fs.names("/file") == ["deep"]
        await fs.rename("/d", "/file", exchange=True)
        assert await fs.names("/d") == ["deep"]
        await fs.rename("/d", "/d", exchange=True)
        with pytest.raises(NotFound):
            await fs.rename("/d", "/gone", exchange=True)
        with pytest.raises(NotFound):
            await fs.rename("/gone", "/d", exchange=True)
        with pytest.raises(InvalidArgument):
            await fs.rename("/d", "/file", exchange=True, no_replace=True)

    run(test)


def test_a_whiteout_takes_the_place_that_becomes_free() -> None:
    async def test(fs: MetaBench) -> None:
        async def move(*, exchange: bool = False, no_replace: bool = False) -> pb.InodeReply:
            request = pb.RenameRequest(
                mutation=fs.mutation(),
                source=at("/a"),
                destination=at("/b"),
                exchange=exchange,
                no_replace=no_replace,
                whiteout=True,
            )
            return await rename(fs.context, request)

        file, old = (await fs.create("/a")).inode, (await fs.create("/b")).inode
        with pytest.raises(AlreadyExists):
            await move(no_replace=True)
        with pytest.raises(InvalidArgument):
            await move(exchange=True)
        assert (await move()).inode.inode == (await fs.stat("/b")).inode == file.inode != old.inode
        left = await fs.stat("/a")
        assert (left.type, left.rdev, left.mode, left.nlink) == (pb.CHARACTER_DEVICE, 0, 0, 1)
        assert await fs.names("/") == ["a", "b"]
        await fs.mkdir("/d")
        request = pb.RenameRequest(mutation=fs.mutation(), source=at("/d"), destination=at("/e"), whiteout=True)
        assert (await rename(fs.context, request)).inode.inode == (await fs.stat("/e")).inode
        assert (await fs.stat("/d")).type == pb.CHARACTER_DEVICE

    run(test)


def test_an_exchange_makes_no_loop_either() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b/c", parents=True)
        for one, other in (("/a", "/a/b"), ("/a/b", "/a"), ("/a", "/a/b/c"), ("/a/b/c", "/a")):
            with pytest.raises(InvalidArgument):
                await fs.rename(one, other, exchange=True)
        assert (await fs.stat("/a/b/c")).type == pb.DIRECTORY

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_exchanges_at_once_are_a_permutation(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        made = sorted([(await fs.create(f"/{number}")).inode.inode for number in range(4)])
        await asyncio.gather(*(fs.rename(f"/{n}", f"/{(n * 3 + 1) % 4}", exchange=True) for n in range(4)))
        assert sorted([(await fs.stat(f"/{number}")).inode for number in range(4)]) == made

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


def test_every_rename_sets_the_change_time() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        fs.clock.advance(1)
        await fs.rename("/a", "/b")
        found = await fs.stat("/b")
        assert found.ctime_ns == fs.clock.wall_ns() > found.mtime_ns

    run(test)


def test_nothing_is_moved_into_a_removed_tree() -> None:
    async def test(fs: MetaBench) -> None:
        inner = await fs.mkdir("/gone/inner", parents=True)
        await fs.mkdir("/d")
        await fs.remove("/gone", recursive=True)
        request = pb.RenameRequest(mutation=fs.mutation(), source=at("/d"), destination=at("d", inner.inode))
        with pytest.raises(NotFound):
            await rename(fs.context, request)

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_many_renames_onto_one_name_lose_nothing_but_what_is_replaced(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        for number in range(8):
            await fs.create(f"/{number}")
        await asyncio.gather(*(fs.rename(f"/{number}", "/winner") for number in range(8)))
        assert await fs.names("/") == ["winner"]
        await fs.collect_all()

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)
