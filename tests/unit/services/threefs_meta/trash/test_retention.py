"""What goes into the trash, where, and what does not."""

import pytest
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly
from threefs_meta.trash import retention

from tests.harness.meta_harness import SESSION, MetaBench, run
from threefs.errors import AccessDenied, AlreadyExists, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb

DAY_S = 24 * 3600


async def records(fs: MetaBench) -> int:
    return len(await fs.engine.begin().get_range(*keys.TRASH))


@pytest.mark.parametrize("seed", range(3))
def test_a_removed_file_moves_to_its_owners_trash_with_what_is_known_of_it(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d/e", mode=0o777, parents=True)
        await fs.set_trash("/d", DAY_S)
        with fs.user(1000, 1000):
            made = (await fs.create("/d/e/a")).inode
        await fs.write(made, 0, b"abc")
        await fs.remove("/d/e/a")
        with pytest.raises(NotFound):
            await fs.stat("/d/e/a")
        (item,) = await fs.trash(1000)
        assert (item.path, item.uid, item.inode.inode, item.inode.nlink) == (b"/d/e/a", 0, made.inode, 1)
        assert item.name.startswith(b"a~") and DAY_S - 10 < item.left_s <= DAY_S + 10
        await fs.collect_all()
        assert fs.chunk_numbers(made) == [0]
        path = f"/.trash/1000/{item.name.decode()}"
        with fs.user(2000, 2000), pytest.raises(AccessDenied):
            await fs.stat(path)
        with fs.user(1000, 1000):
            await fs.rename(path, "/d/e/a")
        assert await fs.trash(1000) == [] and (await fs.stat("/d/e/a")).inode == made.inode

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


def test_the_nearest_setting_above_counts() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/a/b/c", parents=True)

        async def time_s(path: str) -> int:
            number = (await fs.stat(path)).inode
            return await run_readonly(fs.context, lambda ns: retention.retention_s(ns, number))

        assert await time_s("/a/b/c") == 0
        await fs.set_trash("/", 10)
        await fs.set_trash("/a/b", 20)
        assert [await time_s(path) for path in ("/", "/a", "/a/b", "/a/b/c")] == [10, 10, 20, 20]
        await fs.set_trash("/a/b", 0)
        assert [await time_s(path) for path in ("/a", "/a/b/c")] == [10, 0]
        await fs.set_trash("/a/b", None)
        assert await time_s("/a/b/c") == 10
        assert await time_s("/.trash") == 0, "what is in the trash is not kept when it is removed"
        await fs.rename("/a/b/c", "/c")
        assert await time_s("/c") == 10

    run(test)


def test_a_tree_goes_in_as_one_and_comes_back_as_one() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d/sub", parents=True)
        made = (await fs.create("/d/sub/a")).inode
        await fs.set_trash("/", DAY_S)
        await fs.remove("/d", recursive=True)
        (item,) = await fs.trash()
        assert (item.path, item.inode.type) == (b"/d", pb.DIRECTORY)
        await fs.collect_all()
        await fs.rename(f"/.trash/0/{item.name.decode()}", "/d")
        assert (await fs.stat("/d/sub/a")).inode == made.inode

    run(test)


def test_removal_from_the_trash_is_real_and_leaves_no_record() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", DAY_S)
        made = (await fs.create("/a")).inode
        await fs.write(made, 0, b"abc")
        await fs.remove("/a")
        (item,) = await fs.trash()
        assert await records(fs) == 1
        await fs.remove(f"/.trash/0/{item.name.decode()}")
        assert await fs.trash() == [] and await records(fs) == 0
        await fs.collect_all()
        assert fs.chunk_numbers(made) == []
        await fs.create("/b")
        await fs.remove("/b")
        await fs.remove("/.trash", recursive=True)
        with pytest.raises(NotFound):
            await fs.trash()
        await fs.create("/c")
        await fs.remove("/c")
        assert [item.path for item in await fs.trash()] == [b"/c"], "it is made again when it is needed"

    run(test)


def test_what_is_never_kept() -> None:
    """An empty directory, and what a rename replaces."""

    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", DAY_S)
        await fs.mkdir("/d")
        await fs.remove("/d")
        await fs.mkdir("/d")
        await fs.remove("/d", recursive=True)
        await fs.create("/a")
        await fs.create("/b")
        await fs.rename("/a", "/b")
        with pytest.raises(NotFound):
            await fs.trash()

    run(test)


def test_names_stay_unique_and_within_their_limit() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", DAY_S)
        for _ in range(3):
            await fs.create("/" + "n" * 255)
            await fs.remove("/" + "n" * 255)
        names = {item.name for item in await fs.trash()}
        assert len(names) == 3 and {len(name) for name in names} == {255}
        assert {item.path for item in await fs.trash()} == {b"/" + b"n" * 255}

    run(test)


def test_a_file_that_is_open_or_has_other_names_can_be_removed_as_ever() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", DAY_S)
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.link("/a", "/b")
        await fs.remove("/a")
        await fs.close(made, SESSION, length_hint=5, written=True)
        assert (await fs.stat("/b")).nlink == 2
        await fs.remove("/b")
        assert sorted(item.path for item in await fs.trash()) == [b"/a", b"/b"]
        assert {item.inode.length for item in await fs.trash()} == {5}

    run(test)


def test_a_trash_that_cannot_be_made_is_told_and_nothing_is_lost() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.create("/.trash")
        with pytest.raises(NotADirectory):
            await fs.set_trash("/", DAY_S)
        await fs.remove("/.trash")
        await fs.mkdir("/.trash")
        with pytest.raises(AlreadyExists):
            await fs.set_trash("/", DAY_S)
        await fs.remove("/.trash")
        await fs.set_trash("/", DAY_S)
        await fs.remove("/.trash", recursive=True)
        await fs.mkdir("/.trash")
        with pytest.raises(AlreadyExists):
            await fs.remove("/a")
        assert await fs.stat("/a")

    run(test)


def test_quotas_go_on_counting_what_is_in_the_trash() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/q")
        await fs.set_quota("/q", limit_bytes=100)
        await fs.set_trash("/q", DAY_S)
        made = (await fs.create("/q/a", session=SESSION)).inode
        await fs.close(made, SESSION, length_hint=90, written=True)
        await fs.remove("/q/a")
        await fs.count_all()
        usage = await fs.quota("/q")
        assert usage is not None and usage.used_bytes == 90
        (item,) = await fs.trash()
        await fs.remove(f"/.trash/0/{item.name.decode()}")
        await fs.count_all()
        usage = await fs.quota("/q")
        assert usage is not None and usage.used_bytes == 0

    run(test)


@pytest.mark.parametrize(
    ("name", "due"),
    [(b"a~1f-00112233", 31), (b"~0-00112233", 0), (b"a~1f-0011223", None), (b"a", None), (b"a~g-00112233", None)],
)
def test_a_name_says_when_it_is_due(name: bytes, due: int | None) -> None:
    assert retention.due_of(name) == due
