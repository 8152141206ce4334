"""Removing names."""

import pytest
from threefs_meta.store import keys

from tests.harness.many_changes import changed, remove_of
from tests.harness.meta_harness import MetaBench, run
from threefs.errors import InvalidArgument, IsADirectory, NotADirectory, NotEmpty, NotFound
from threefs.wire import meta_pb2 as pb


def test_files_links_and_empty_directories() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/f")
        await fs.symlink("f", "/l")
        await fs.mkdir("/d")
        await fs.remove("/l")
        assert await fs.names("/") == ["d", "f"], "the link itself, not what it points to"
        await fs.remove("/d/")
        await fs.remove("/f")
        assert await fs.names("/") == []
        with pytest.raises(NotFound):
            await fs.remove("/f")

    run(test)


def test_kinds() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/f")
        await fs.mkdir("/d")
        with pytest.raises(IsADirectory):
            await fs.remove("/d", kind=pb.NOT_DIRECTORY, recursive=True)
        with pytest.raises(NotADirectory):
            await fs.remove("/f", kind=pb.ONLY_DIRECTORY)
        await fs.remove("/d", kind=pb.ONLY_DIRECTORY)
        await fs.remove("/f", kind=pb.NOT_DIRECTORY)

    run(test)


def test_what_cannot_be_removed() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d/e", parents=True)
        with pytest.raises(NotEmpty):
            await fs.remove("/d")
        for path in ("/", "", ".", "/d/.", "/d/e/.."):
            with pytest.raises(InvalidArgument):
                await fs.remove(path, recursive=True)
        assert (await fs.stat("/d/e")).type == pb.DIRECTORY

    run(test)


def test_a_tree_goes_in_one_transaction_however_large() -> None:
    async def test(fs: MetaBench) -> None:
        for number in range(300):
            await fs.create(f"/t/{number % 7}/{number}", parents=True)
        before = fs.engine._history.version
        await fs.remove("/t", recursive=True)
        assert fs.engine._history.version == before + 1
        with pytest.raises(NotFound):
            await fs.stat("/t/1/1")
        await fs.mkdir("/t")
        assert await fs.names("/t") == []
        await fs.collect_all()
        assert await fs.names("/") == ["t"]
        assert len(await fs.engine.begin().get_range(*keys.INODES)) == 2

    run(test)


def test_the_other_names_of_a_file_stay() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.link("/a", "/b")
        fs.clock.advance(1)
        await fs.remove("/a")
        left = await fs.stat("/b")
        assert left.nlink == 1 and left.ctime_ns == fs.clock.wall_ns()

    run(test)


def test_a_user_takes_out_no_tree_at_once_however_much_of_it_is_theirs() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/top/theirs", parents=True)
        await fs.create("/top/theirs/file")
        await fs.set("/top", uid=5)
        with fs.user(5, 5):
            await fs.mkdir("/top/empty")
            await fs.remove("/top/empty", recursive=True)
            with pytest.raises(NotEmpty):
                await fs.remove("/top/theirs", recursive=True)

    run(test)


def test_two_names_of_one_file_are_removed_together() -> None:
    async def test(fs: MetaBench) -> None:
        file = await fs.create("/a")
        await fs.link("/a", "/b")
        await fs.link("/a", "/c")
        await fs.create("/d")
        changes = remove_of("/d"), remove_of("/a"), remove_of("/b"), remove_of("/d")
        assert await changed(fs, *changes) == [0, 0, 0, NotFound.code]
        assert (await fs.stat("/c")).nlink == 1
        itself = pb.Change(remove=pb.RemoveRequest(place=pb.Place(base=file.inode.inode)))
        assert await changed(fs, itself, remove_of("/c")) == [InvalidArgument.code, 0]

    run(test)
