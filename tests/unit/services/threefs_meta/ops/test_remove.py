"""Removing names."""

import pytest
from threefs_meta.store import keys

from tests.harness.many_changes import changed, remove_of
from tests.harness.meta_harness import MetaBench
from threefs.errors import InvalidArgument, IsADirectory, NotADirectory, NotEmpty, NotFound
from threefs.wire import meta_pb2 as pb


async def test_files_links_and_empty_directories(bench: MetaBench) -> None:
    await bench.create("/f")
    await bench.symlink("f", "/l")
    await bench.mkdir("/d")
    await bench.remove("/l")
    assert await bench.names("/") == ["d", "f"], "the link itself, not what it points to"
    await bench.remove("/d/")
    await bench.remove("/f")
    assert await bench.names("/") == []
    with pytest.raises(NotFound):
        await bench.remove("/f")


async def test_kinds(bench: MetaBench) -> None:
    await bench.create("/f")
    await bench.mkdir("/d")
    with pytest.raises(IsADirectory):
        await bench.remove("/d", kind=pb.NOT_DIRECTORY, recursive=True)
    with pytest.raises(NotADirectory):
        await bench.remove("/f", kind=pb.ONLY_DIRECTORY)
    await bench.remove("/d", kind=pb.ONLY_DIRECTORY)
    await bench.remove("/f", kind=pb.NOT_DIRECTORY)


async def test_removals_that_are_refused(bench: MetaBench) -> None:
    await bench.mkdir("/d/e", parents=True)
    with pytest.raises(NotEmpty):
        await bench.remove("/d")
    for path in ("/", "", ".", "/d/.", "/d/e/.."):
        with pytest.raises(InvalidArgument):
            await bench.remove(path, recursive=True)
    assert (await bench.stat("/d/e")).type == pb.DIRECTORY


async def test_a_tree_goes_in_one_transaction_however_large(bench: MetaBench) -> None:
    for number in range(300):
        await bench.create(f"/t/{number % 7}/{number}", parents=True)
    before = bench.engine._history.version
    await bench.remove("/t", recursive=True)
    assert bench.engine._history.version == before + 1
    with pytest.raises(NotFound):
        await bench.stat("/t/1/1")
    await bench.mkdir("/t")
    assert await bench.names("/t") == []
    await bench.collect_all()
    assert await bench.names("/") == ["t"]
    assert len(await bench.engine.begin().get_range(*keys.INODES)) == 2


async def test_the_other_names_of_a_file_stay(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.link("/a", "/b")
    bench.clock.advance(1)
    await bench.remove("/a")
    left = await bench.stat("/b")
    assert left.nlink == 1 and left.ctime_ns == bench.clock.wall_ns()


async def test_a_user_takes_out_no_tree_at_once_however_much_of_it_is_theirs(bench: MetaBench) -> None:
    await bench.mkdir("/top/theirs", parents=True)
    await bench.create("/top/theirs/file")
    await bench.set("/top", uid=5)
    with bench.user(5, 5):
        await bench.mkdir("/top/empty")
        await bench.remove("/top/empty", recursive=True)
        with pytest.raises(NotEmpty):
            await bench.remove("/top/theirs", recursive=True)


async def test_two_names_of_one_file_are_removed_together(bench: MetaBench) -> None:
    file = await bench.create("/a")
    await bench.link("/a", "/b")
    await bench.link("/a", "/c")
    await bench.create("/d")
    changes = remove_of("/d"), remove_of("/a"), remove_of("/b"), remove_of("/d")
    assert await changed(bench, *changes) == [0, 0, 0, NotFound.code]
    assert (await bench.stat("/c")).nlink == 1
    itself = pb.Change(remove=pb.RemoveRequest(place=pb.Place(base=file.inode.inode)))
    assert await changed(bench, itself, remove_of("/c")) == [InvalidArgument.code, 0]


async def test_a_link_that_is_removed_ends_the_paths_through_it(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    for path in ("/d/x", "/d/y", "/f"):
        await bench.create(path)
    await bench.symlink("d", "/l")
    changes = remove_of("/f"), remove_of("/l/y"), remove_of("/l"), remove_of("/l/x")
    assert await changed(bench, *changes) == [0, 0, 0, NotFound.code]
    assert await bench.names("/d") == ["x"]
