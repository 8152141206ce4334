"""Renaming."""

import asyncio

import pytest
from threefs_meta.ops import rename as module
from threefs_meta.ops.rename import rename
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import (
    AccessDenied,
    AlreadyExists,
    Corrupt,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    TooLarge,
)
from threefs.wire import meta_pb2 as pb


async def test_to_another_place(bench: MetaBench) -> None:
    await bench.mkdir("/a/b/c", parents=True)
    await bench.mkdir("/x")
    file = (await bench.create("/a/f")).inode
    assert (await bench.rename("/a/f", "/x/g")).inode == file.inode
    moved = await bench.rename("/a/b", "/x/b2")
    assert (moved.name, moved.parent) == (b"b2", (await bench.stat("/x")).inode)
    assert await bench.names("/x") == ["b2", "g"] and await bench.names("/a") == []
    assert (await bench.stat("/x/b2/c/../..")).name == b"x"
    await bench.rename("/x/g", "/x/h")
    assert await bench.names("/x") == ["b2", "h"]


async def test_replacing(bench: MetaBench) -> None:
    one, two = (await bench.create("/one")).inode, (await bench.create("/two", session=SESSION)).inode
    await bench.write(two, 0, b"data")
    await bench.close(two, SESSION, length_hint=4)
    with pytest.raises(AlreadyExists):
        await bench.rename("/one", "/two", no_replace=True)
    await bench.rename("/one", "/two")
    assert (await bench.stat("/two")).inode == one.inode
    await bench.collect_all()
    assert bench.chunk_numbers(two) == []
    await bench.symlink("two", "/link")
    await bench.rename("/link", "/two")
    assert (await bench.stat("/two", follow=False)).type == pb.SYMLINK
    await bench.mkdir("/d/full", parents=True)
    empty = await bench.mkdir("/e")
    with pytest.raises(NotEmpty):
        await bench.rename("/e", "/d")
    request = pb.RenameRequest(mutation=bench.mutation(), source=at("/d"), destination=at("/e"), caller=bench.caller)
    assert (await rename(bench.context, request)).replaced.inode == empty.inode  # for who still works in it
    assert await bench.names("/") == ["e", "two"]


async def test_kinds_do_not_mix(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.create("/f")
    with pytest.raises(NotADirectory):
        await bench.rename("/d", "/f")
    with pytest.raises(IsADirectory):
        await bench.rename("/f", "/d")
    with pytest.raises(NotADirectory):
        await bench.rename("/d", "/f/x")


async def test_onto_itself_or_another_name_of_the_file_does_nothing(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.link("/a", "/b")
    await bench.mkdir("/d")
    for source, target in (("/a", "/a"), ("/a", "/b"), ("/d", "/d")):
        await bench.rename(source, target)
    assert await bench.names("/") == ["a", "b", "d"]


async def test_below_itself_or_from_and_to_nowhere(bench: MetaBench) -> None:
    await bench.mkdir("/a/b/c", parents=True)
    for target in ("/a/x", "/a/b/x", "/a/b/c/x"):
        with pytest.raises(InvalidArgument):
            await bench.rename("/a", target)
    with pytest.raises(NotEmpty):
        await bench.rename("/a/b", "/a")
    for source, target, error in (
        ("/gone", "/x", NotFound),
        ("/a", "/gone/x", NotFound),
        ("/", "/x", InvalidArgument),
        ("/a", "/", InvalidArgument),
        ("/a/.", "/x", InvalidArgument),
        ("/a", "/a/..", InvalidArgument),
    ):
        with pytest.raises(error):
            await bench.rename(source, target)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by_inode", [False, True])
async def test_two_moves_at_once_make_no_loop(bench: MetaBench, seed: int, by_inode: bool) -> None:
    a2 = await bench.mkdir("/a/a2", parents=True)
    b2 = await bench.mkdir("/b/b2", parents=True)
    into_b2 = at("a", b2.inode) if by_inode else at("/b/b2/a")
    into_a2 = at("b", a2.inode) if by_inode else at("/a/a2/b")
    requests = [
        pb.RenameRequest(mutation=bench.mutation(), source=at("/a"), destination=into_b2),
        pb.RenameRequest(mutation=bench.mutation(), source=at("/b"), destination=into_a2),
    ]
    results = await asyncio.gather(*(rename(bench.context, r) for r in requests), return_exceptions=True)
    assert sum(isinstance(result, pb.InodeReply) for result in results) == 1
    await bench.audit()


async def test_two_entries_change_places(bench: MetaBench) -> None:
    inner = await bench.mkdir("/d/inner", parents=True)
    await bench.create("/d/inner/deep")
    file = (await bench.create("/file")).inode
    await bench.rename("/file", "/d/inner", exchange=True)
    assert (await bench.stat("/d/inner")).inode == file.inode
    moved = await bench.stat("/file")
    assert (moved.inode, moved.parent, moved.name) == (inner.inode, 1, b"file")
    assert await bench.names("/file") == ["deep"]
    await bench.rename("/d", "/file", exchange=True)
    assert await bench.names("/d") == ["deep"]
    await bench.rename("/d", "/d", exchange=True)
    with pytest.raises(NotFound):
        await bench.rename("/d", "/gone", exchange=True)
    with pytest.raises(NotFound):
        await bench.rename("/gone", "/d", exchange=True)
    with pytest.raises(InvalidArgument):
        await bench.rename("/d", "/file", exchange=True, no_replace=True)


async def test_a_whiteout_takes_the_place_that_becomes_free(bench: MetaBench) -> None:
    async def move(*, exchange: bool = False, no_replace: bool = False) -> pb.InodeReply:
        request = pb.RenameRequest(
            mutation=bench.mutation(),
            source=at("/a"),
            destination=at("/b"),
            exchange=exchange,
            no_replace=no_replace,
            whiteout=True,
        )
        return await rename(bench.context, request)

    file, old = (await bench.create("/a")).inode, (await bench.create("/b")).inode
    with pytest.raises(AlreadyExists):
        await move(no_replace=True)
    with pytest.raises(InvalidArgument):
        await move(exchange=True)
    assert (await move()).inode.inode == (await bench.stat("/b")).inode == file.inode != old.inode
    left = await bench.stat("/a")
    assert (left.type, left.rdev, left.mode, left.nlink) == (pb.CHARACTER_DEVICE, 0, 0, 1)
    assert await bench.names("/") == ["a", "b"]
    await bench.mkdir("/d")
    request = pb.RenameRequest(mutation=bench.mutation(), source=at("/d"), destination=at("/e"), whiteout=True)
    assert (await rename(bench.context, request)).inode.inode == (await bench.stat("/e")).inode
    assert (await bench.stat("/d")).type == pb.CHARACTER_DEVICE


async def test_of_two_names_of_one_file_the_source_goes_if_that_is_asked_for(bench: MetaBench) -> None:
    """`mv` does so. `rename(2)` leaves both."""
    await bench.mkdir("/d", mode=0o755)
    made = (await bench.create("/d/a")).inode
    for name in ("/d/b", "/c"):
        await bench.link("/d/a", name)
    await bench.rename("/d/a", "/d/b")
    assert await bench.names("/d") == ["a", "b"]
    for other in ("/d/a", "/d/../d/a"):  # no other name
        assert (await bench.rename("/d/a", other, always_moves=True)).nlink == 3
    with bench.user(1000, 1000), pytest.raises(AccessDenied):
        await bench.rename("/d/a", "/d/b", always_moves=True)
    with pytest.raises(InvalidArgument):
        await bench.rename("/d/a", "/d/b", always_moves=True, exchange=True)
    found = await bench.rename("/d/a", "/d/b", always_moves=True)
    assert (found.inode, found.nlink) == (made.inode, 2) and await bench.names("/d") == ["b"]
    await bench.set_quota("/d", limit_inodes=10)
    await bench.link("/d/b", "/d/e")
    await bench.rename("/d/e", "/c", always_moves=True)
    await bench.rename("/d/b", "/c", always_moves=True)
    await bench.count_all()
    quota = await bench.quota("/d")
    assert quota is not None and quota.used_inodes == 1 == (await bench.stat("/c")).nlink, "it counts where its name is"


async def test_an_exchange_makes_no_loop_either(bench: MetaBench) -> None:
    await bench.mkdir("/a/b/c", parents=True)
    for one, other in (("/a", "/a/b"), ("/a/b", "/a"), ("/a", "/a/b/c"), ("/a/b/c", "/a")):
        with pytest.raises(InvalidArgument):
            await bench.rename(one, other, exchange=True)
    assert (await bench.stat("/a/b/c")).type == pb.DIRECTORY


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_exchanges_at_once_are_a_permutation(bench: MetaBench, seed: int) -> None:
    made = sorted([(await bench.create(f"/{number}")).inode.inode for number in range(4)])
    await asyncio.gather(*(bench.rename(f"/{n}", f"/{(n * 3 + 1) % 4}", exchange=True) for n in range(4)))
    assert sorted([(await bench.stat(f"/{number}")).inode for number in range(4)]) == made


async def test_every_rename_sets_the_change_time(bench: MetaBench) -> None:
    await bench.create("/a")
    bench.clock.advance(1)
    await bench.rename("/a", "/b")
    found = await bench.stat("/b")
    assert found.ctime_ns == bench.clock.wall_ns() > found.mtime_ns


async def test_nothing_is_moved_into_a_removed_tree(bench: MetaBench) -> None:
    inner = await bench.mkdir("/gone/inner", parents=True)
    await bench.mkdir("/d")
    await bench.remove("/gone", recursive=True)
    request = pb.RenameRequest(mutation=bench.mutation(), source=at("/d"), destination=at("d", inner.inode))
    with pytest.raises(NotFound):
        await rename(bench.context, request)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_many_renames_onto_one_name_lose_nothing_but_what_is_replaced(bench: MetaBench, seed: int) -> None:
    for number in range(8):
        await bench.create(f"/{number}")
    await asyncio.gather(*(bench.rename(f"/{number}", "/winner") for number in range(8)))
    assert await bench.names("/") == ["winner"]
    await bench.collect_all()


async def test_a_damaged_tree_without_a_way_to_the_root_is_an_error_in_words(bench: MetaBench) -> None:
    a, b, moved = [await bench.mkdir(path, parents=True) for path in ("/a", "/a/b", "/moved")]
    right = await damage.get(bench, keys.inode(a.inode))
    a.parent = b.inode
    await damage.put_inode(bench, a)
    request = pb.RenameRequest(mutation=bench.mutation(), source=at("/moved"), destination=at("x", b.inode))
    with pytest.raises(Corrupt, match="lies below itself"):
        await rename(bench.context, request)
    await damage.put(bench, keys.inode(a.inode), right)
    await damage.put_entry(bench, moved.inode, b"itself", moved.inode, pb.DIRECTORY)
    with pytest.raises(InvalidArgument, match="below itself"):
        await bench.rename("/moved/itself", "/moved/other")
    await damage.drop_entry(bench, moved.inode, b"itself")


async def test_a_place_that_is_too_deep_is_refused_before_all_above_it_is_read(
    bench: MetaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction would be refused in the end; until then no other call was served."""
    monkeypatch.setattr(module, "MAX_LEVELS", 20)
    await bench.mkdir("/moved")
    for depth in (20, 30):
        path = f"/{depth}" + "/d" * (depth - 1)
        await bench.mkdir(path, parents=True)
        if depth == 20:
            await bench.rename("/moved", f"{path}/moved")
            await bench.rename(f"{path}/moved", "/moved")
    with pytest.raises(TooLarge, match="below more than 20 directories"):
        await bench.rename("/moved", f"{path}/moved")
    assert await bench.names("/") == ["20", "30", "moved"]
