"""What goes into the trash, where, and what does not."""

import pytest
from threefs_meta.ops.quota import list_quotas
from threefs_meta.ops.statistics import counted
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly
from threefs_meta.trash import retention
from threefs_meta.trash.trash_reaper import TrashReaper

from tests.harness.meta_harness import SESSION, MetaBench
from threefs.errors import AccessDenied, AlreadyExists, NotADirectory, NotFound, QuotaExceeded
from threefs.wire import meta_pb2 as pb

DAY_S = 24 * 3600


async def records(fs: MetaBench) -> int:
    return len(await fs.engine.begin().get_range(*keys.TRASH))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_a_removed_file_moves_to_its_owners_trash_with_what_is_known_of_it(bench: MetaBench, seed: int) -> None:
    await bench.mkdir("/d/e", mode=0o777, parents=True)
    await bench.set_trash("/d", DAY_S)
    with bench.user(1000, 1000):
        made = (await bench.create("/d/e/a")).inode
    await bench.write(made, 0, b"abc")
    await bench.remove("/d/e/a")
    with pytest.raises(NotFound):
        await bench.stat("/d/e/a")
    (item,) = await bench.trash(1000)
    assert (item.path, item.uid, item.inode.inode, item.inode.nlink) == (b"/d/e/a", 0, made.inode, 1)
    assert item.name.startswith(b"a~") and DAY_S - 10 < item.left_s <= DAY_S + 10
    await bench.collect_all()
    assert bench.chunk_numbers(made) == [0]
    path = f"/.trash/1000/{item.name.decode()}"
    with bench.user(2000, 2000), pytest.raises(AccessDenied):
        await bench.stat(path)
    with bench.user(1000, 1000):
        await bench.rename(path, "/d/e/a")
    assert await bench.trash(1000) == [] and (await bench.stat("/d/e/a")).inode == made.inode


async def test_the_nearest_setting_above_counts(bench: MetaBench) -> None:
    await bench.mkdir("/a/b/c", parents=True)

    async def time_s(path: str) -> int:
        number = (await bench.stat(path)).inode
        return await run_readonly(bench.context, lambda ns: retention.retention_s(ns, number))

    assert await time_s("/a/b/c") == 0
    await bench.set_trash("/", 10)
    await bench.set_trash("/a/b", 20)
    assert [await time_s(path) for path in ("/", "/a", "/a/b", "/a/b/c")] == [10, 10, 20, 20]
    await bench.set_trash("/a/b", 0)
    assert [await time_s(path) for path in ("/a", "/a/b/c")] == [10, 0]
    await bench.set_trash("/a/b", None)
    assert await time_s("/a/b/c") == 10
    assert await time_s("/.trash") == 0, "what is in the trash is not kept when it is removed"
    await bench.rename("/a/b/c", "/c")
    assert await time_s("/c") == 10


async def test_a_tree_goes_in_as_one_and_comes_back_as_one(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    made = (await bench.create("/d/sub/a")).inode
    await bench.set_trash("/", DAY_S)
    await bench.remove("/d", recursive=True)
    (item,) = await bench.trash()
    assert (item.path, item.inode.type) == (b"/d", pb.DIRECTORY)
    await bench.collect_all()
    await bench.rename(f"/.trash/0/{item.name.decode()}", "/d")
    assert (await bench.stat("/d/sub/a")).inode == made.inode


async def test_removal_from_the_trash_is_real_and_leaves_no_record(bench: MetaBench) -> None:
    await bench.set_trash("/", DAY_S)
    made = (await bench.create("/a")).inode
    await bench.write(made, 0, b"abc")
    await bench.remove("/a")
    (item,) = await bench.trash()
    assert await records(bench) == 1
    await bench.remove(f"/.trash/0/{item.name.decode()}")
    assert await bench.trash() == [] and await records(bench) == 0
    await bench.collect_all()
    assert bench.chunk_numbers(made) == []
    await bench.create("/b")
    await bench.remove("/b")
    await bench.remove("/.trash", recursive=True)
    with pytest.raises(NotFound):
        await bench.trash()
    await bench.create("/c")
    await bench.remove("/c")
    assert [item.path for item in await bench.trash()] == [b"/c"], "it is made again when it is needed"


async def test_what_is_removed_from_a_tree_in_the_trash_is_gone_also_if_the_tree_had_a_trash_time(
    bench: MetaBench,
) -> None:
    await bench.mkdir("/d/e", parents=True)
    await bench.create("/d/e/a")
    await bench.set_trash("/", DAY_S)
    await bench.set_trash("/d/e", DAY_S)
    await bench.remove("/d", recursive=True)
    (tree,) = await bench.trash()
    await bench.remove(f"/.trash/0/{tree.name.decode()}/e/a")
    assert await bench.trash() == [tree], "it does not come into the trash again"


async def test_removals_that_skip_the_trash(bench: MetaBench) -> None:
    """An empty directory, and what a rename replaces."""
    await bench.set_trash("/", DAY_S)
    await bench.mkdir("/d")
    await bench.remove("/d")
    await bench.mkdir("/d")
    await bench.remove("/d", recursive=True)
    await bench.create("/a")
    await bench.create("/b")
    await bench.rename("/a", "/b")
    with pytest.raises(NotFound):
        await bench.trash()


async def test_names_stay_unique_and_within_their_limit(bench: MetaBench) -> None:
    await bench.set_trash("/", DAY_S)
    for _ in range(3):
        await bench.create("/" + "n" * 255)
        await bench.remove("/" + "n" * 255)
    names = {item.name for item in await bench.trash()}
    assert len(names) == 3 and {len(name) for name in names} == {255}
    assert {item.path for item in await bench.trash()} == {b"/" + b"n" * 255}


async def test_a_file_that_is_open_or_has_other_names_can_be_removed_as_ever(bench: MetaBench) -> None:
    await bench.set_trash("/", DAY_S)
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.link("/a", "/b")
    await bench.remove("/a")
    await bench.close(made, SESSION, length_hint=5, written=True)
    assert (await bench.stat("/b")).nlink == 2
    await bench.remove("/b")
    assert sorted(item.path for item in await bench.trash()) == [b"/a", b"/b"]
    assert {item.inode.length for item in await bench.trash()} == {5}


async def test_a_trash_that_cannot_be_made_is_an_error_and_nothing_is_lost(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.create("/.trash")
    with pytest.raises(NotADirectory):
        await bench.set_trash("/", DAY_S)
    await bench.remove("/.trash")
    await bench.mkdir("/.trash")
    with pytest.raises(AlreadyExists):
        await bench.set_trash("/", DAY_S)
    await bench.remove("/.trash")
    await bench.set_trash("/", DAY_S)
    await bench.remove("/.trash", recursive=True)
    await bench.mkdir("/.trash")
    with pytest.raises(AlreadyExists):
        await bench.remove("/a")
    assert await bench.stat("/a")


async def test_quotas_go_on_counting_what_is_in_the_trash(bench: MetaBench) -> None:
    await bench.mkdir("/q")
    await bench.set_quota("/q", limit_bytes=100)
    await bench.set_trash("/q", DAY_S)
    made = (await bench.create("/q/a", session=SESSION)).inode
    await bench.close(made, SESSION, length_hint=90, written=True)
    await bench.remove("/q/a")
    await bench.count_all()
    usage = await bench.quota("/q")
    assert usage is not None and usage.used_bytes == 90
    (item,) = await bench.trash()
    await bench.remove(f"/.trash/0/{item.name.decode()}")
    await bench.count_all()
    usage = await bench.quota("/q")
    assert usage is not None and usage.used_bytes == 0


async def test_what_is_in_the_trash_counts_for_its_tree_also_when_all_is_counted_anew(bench: MetaBench) -> None:
    """The first quota of a user, and each one of the root directory, come by all directories."""
    await bench.mkdir("/q/d", parents=True)
    await bench.set_quota("/q", limit_bytes=100)
    await bench.count_all()
    await bench.set_trash("/", DAY_S)
    for path in ("/q/a", "/q/d/b", "/c"):
        made = (await bench.create(path, session=SESSION)).inode
        await bench.close(made, SESSION, length_hint=30, written=True)
    await bench.set("/q/d/b", uid=1000)
    for path in ("/q/a", "/q/d", "/c"):
        await bench.remove(path, recursive=True)
    await bench.set_quota(uid=1000, limit_bytes=100)
    await bench.set_quota("/", limit_bytes=1000)
    await bench.count_all()

    async def used_bytes() -> list[int]:
        quotas = [await bench.quota("/q"), await bench.quota("/"), await bench.quota(uid=1000)]
        return [quota.used_bytes for quota in quotas if quota is not None]

    assert await used_bytes() == [60, 90, 30], "the tree of /q counts for the root as well"
    await bench.set_quota("/q", clear=True)
    await bench.set_quota("/", clear=True)
    await bench.count_all()
    await bench.set_quota("/", limit_bytes=1000)
    await bench.count_all()
    assert await used_bytes() == [90, 90, 30], "the quota that /q had keeps nothing; it counts for the root alone"


async def test_a_tree_in_the_trash_with_a_quota_of_its_own_counts_for_the_tree_around_it(bench: MetaBench) -> None:
    """It counted for none, if the quota of the root directory was set later."""
    await bench.mkdir("/p/q", parents=True)
    for path in ("/p", "/p/q"):
        await bench.set_quota(path, limit_bytes=100)
    await bench.set_trash("/", DAY_S)
    made = (await bench.create("/p/q/a", session=SESSION)).inode
    await bench.close(made, SESSION, length_hint=30, written=True)
    await bench.remove("/p/q", recursive=True)
    await bench.set_quota("/", limit_bytes=1000)
    await bench.count_all()

    async def used_bytes(path: str) -> int | None:
        quota = await bench.quota(path)
        return None if quota is None else quota.used_bytes

    assert [await used_bytes(path) for path in ("/p", "/")] == [30, 30], "that of /p counts for the root as well"
    for clear in (True, False):
        await bench.set_quota("/p", limit_bytes=100, clear=True)
        await bench.set_quota("/", limit_bytes=1000, clear=clear)
        await bench.count_all()
    assert await used_bytes("/") == 30


async def keep_in_nested(bench: MetaBench) -> None:
    """A file of /p/q is in the trash. Both trees have quotas."""
    await bench.mkdir("/p/q/d", parents=True)
    for path in ("/p", "/p/q"):
        await bench.set_quota(path, limit_bytes=100)
    await bench.count_all()
    await bench.set_trash("/p", DAY_S)
    made = (await bench.create("/p/q/d/a", session=SESSION)).inode
    await bench.close(made, SESSION, length_hint=90, written=True)
    await bench.remove("/p/q/d/a")
    await bench.count_all()


async def listed(bench: MetaBench) -> list[tuple[bytes, int]]:
    await bench.count_all()
    quotas = (await list_quotas(bench.context, pb.ListQuotasRequest())).quotas
    assert [(one.tree, one.used_bytes) for one in counted(bench.context).quotas] == [
        (one.tree, one.used_bytes) for one in quotas
    ]
    return [(quota.path, quota.used_bytes) for quota in quotas]


@pytest.mark.parametrize("how", ["cleared", "removed", "removed with a file", "replaced", "expired"])
async def test_the_trash_of_a_tree_whose_quota_has_ended_counts_for_the_trees_around_it(
    bench: MetaBench, how: str
) -> None:
    await keep_in_nested(bench)
    await bench.rename("/p/q/d", "/p/d")  # nothing else is left in /p/q
    match how:
        case "cleared":
            await bench.set_quota("/p/q", clear=True)
            await bench.set_quota("/p/q", clear=True)
        case "removed":
            await bench.remove("/p/q")
        case "removed with a file":
            await bench.set_trash("/p", 0)
            await bench.create("/p/q/b")
            await bench.remove("/p/q", recursive=True)
            await bench.collect_all()
        case "replaced":
            await bench.rename("/p/d", "/p/q")
        case "expired":
            await bench.set_trash("/p", 1)
            await bench.create("/p/q/b")
            await bench.remove("/p/q", recursive=True)
            (item,) = [item for item in await bench.trash() if item.path == b"/p/q"]
            await bench.remove(f"/.trash/0/{item.name.decode()}/b")
            await bench.pass_ticks(10)
            while await TrashReaper(bench.context).expire():
                pass
    assert await listed(bench) == [(b"/p", 90)]
    (item,) = await bench.trash()
    kept = f"/.trash/0/{item.name.decode()}"
    for path in ("/p", kept):
        quota = await bench.quota(path)
        assert quota is not None and (quota.path, quota.used_bytes) == (b"/p", 90)
    await bench.create("/p/new")
    with pytest.raises(QuotaExceeded):
        await bench.truncate("/p/new", 11)
    await bench.set_quota(uid=0)
    await bench.count_all()  # it comes by the trash
    await bench.set_quota(uid=0, clear=True)
    assert await listed(bench) == [(b"/p", 90)]
    await bench.remove(kept)
    assert await listed(bench) == [(b"/p", 0)]
    assert len(await bench.engine.begin().get_range(*keys.LIMITS)) == 1


async def test_a_quota_that_is_set_again_counts_what_the_trash_keeps(bench: MetaBench) -> None:
    await keep_in_nested(bench)
    await bench.set_quota("/p/q", clear=True)
    await bench.rename("/p/q", "/q")
    assert await listed(bench) == [(b"/p", 90)], "it counts where it was"
    await bench.set_quota("/q", limit_bytes=100)
    assert await listed(bench) == [(b"/p", 0), (b"/q", 90)]


async def test_the_trash_of_trees_whose_quotas_have_all_ended_counts_like_the_trash(bench: MetaBench) -> None:
    await keep_in_nested(bench)
    for path in ("/p/q", "/p"):
        await bench.set_quota(path, clear=True)
    assert await listed(bench) == []
    await bench.set_quota("/", limit_bytes=1000)
    assert await listed(bench) == [(b"/", 90)]
    assert len(await bench.engine.begin().get_range(*keys.LIMITS)) == 1


async def test_what_is_moved_into_the_trash_by_other_means_still_counts_for_its_owner(bench: MetaBench) -> None:
    await bench.set_quota(uid=1000, limit_inodes=10)
    await bench.count_all()
    await bench.mkdir("/d", mode=0o777)
    await bench.set_trash("/d", DAY_S)
    with bench.user(1000, 1000):
        for name in ("/d/a", "/d/b"):
            await bench.create(name)
        await bench.remove("/d/a")
        await bench.rename("/d/b", "/.trash/1000/b")
    await bench.count_all()
    usage = await bench.quota(uid=1000)
    assert usage is not None and usage.used_inodes == 3, "two files, and the directory of the trash"


async def test_a_user_without_a_trash_can_remove_files_in_a_full_quota(bench: MetaBench) -> None:
    await bench.mkdir("/d", mode=0o777)
    await bench.set_trash("/d", DAY_S)
    with bench.user(1000, 1000):
        await bench.create("/d/a")
    await bench.set_quota(uid=1000, limit_inodes=1)
    await bench.count_all()
    with bench.user(1000, 1000):
        await bench.remove("/d/a")
    assert [item.path for item in await bench.trash(1000)] == [b"/d/a"]


@pytest.mark.parametrize(
    ("name", "due"),
    [(b"a~1f-00112233", 31), (b"~0-00112233", 0), (b"a~1f-0011223", None), (b"a", None), (b"a~g-00112233", None)],
)
def test_a_name_says_when_it_is_due(name: bytes, due: int | None) -> None:
    assert retention.due_of(name) == due
