"""The trash on real processes: users, restoring, emptying, and the end of the time."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from threefs_client import AsyncFileSystem, connect_async
from threefs_client.attributes import Entry
from threefs_client.metadata.trash import Trashed

from tests.harness.cluster import LocalCluster
from threefs.errors import AccessDenied, AlreadyExists, InvalidArgument, NotFound

Scene = Callable[[AsyncFileSystem, str], Awaitable[None]]


def play(cluster: LocalCluster, scene: Scene) -> None:
    async def run() -> None:
        async with await connect_async(cluster.address, token=cluster.token) as fs:
            path = f"/trashed/{uuid.uuid4().hex}"
            await fs.mkdir(path, parents=True, mode=0o777)
            await fs.trash.set(path, 3600)
            await scene(fs, path)

    asyncio.run(run())


async def found(fs: AsyncFileSystem, below: str, uid: int | None = None) -> list[Trashed]:
    """Others use the same cluster."""
    return sorted(
        [item async for item in fs.trash.list(uid) if item.original.startswith(below)], key=lambda item: item.original
    )


def test_files_and_trees_come_back(cluster: LocalCluster) -> None:
    async def scene(fs: AsyncFileSystem, path: str) -> None:
        await fs.write_file(f"{path}/a", b"first")
        await fs.mkdir(f"{path}/d/e", parents=True)
        await fs.write_file(f"{path}/d/e/f", b"inner")
        await fs.remove(f"{path}/a")
        await fs.remove(f"{path}/d", recursive=True)
        a, d = await found(fs, path)
        assert (a.original, a.attributes.length, a.owner, a.removed_by) == (f"{path}/a", 5, 0, 0)
        assert d.attributes.is_directory and 0 < d.left_s <= 3700
        assert abs(a.removed_ns - time.time_ns()) < 600 * 10**9
        assert await fs.trash.restore(d.path) == f"{path}/d"
        assert await fs.read_file(f"{path}/d/e/f") == b"inner"
        await fs.write_file(f"{path}/a", b"second")
        with pytest.raises(AlreadyExists, match="another path"):
            await fs.trash.restore(a.path)
        assert await fs.trash.restore(a.path, f"{path}/old") == f"{path}/old"
        assert await fs.read_file(f"{path}/old") == b"first"
        assert await found(fs, path) == []

    play(cluster, scene)


def test_what_cannot_be_restored_says_why(cluster: LocalCluster) -> None:
    async def scene(fs: AsyncFileSystem, path: str) -> None:
        await fs.mkdir(f"{path}/d")
        await fs.write_file(f"{path}/d/a", b"x")
        await fs.remove(f"{path}/d/a")
        await fs.rmdir(f"{path}/d")
        (item,) = await found(fs, path)
        with pytest.raises(NotFound, match=r"the directory of .*/d/a does not exist"):
            await fs.trash.restore(item.path)
        assert await fs.trash.restore(item.path, parents=True) == f"{path}/d/a"
        with pytest.raises(NotFound, match=item.path):
            await fs.trash.restore(item.path)
        await fs.write_file("/.trash/0/stray", b"")
        with pytest.raises(InvalidArgument, match="not known"):
            await fs.trash.restore("/.trash/0/stray")
        await fs.remove("/.trash/0/stray")
        for outside in (f"{path}/d/a", f"/.trash/..{path}/d/a"):
            with pytest.raises(InvalidArgument, match="not in the trash"):
                await fs.trash.restore(outside, f"{path}/d/b")
        with pytest.raises(InvalidArgument):
            await fs.trash.set(path, -1)

    play(cluster, scene)


def test_users_see_what_is_theirs(cluster: LocalCluster) -> None:
    async def scene(fs: AsyncFileSystem, path: str) -> None:
        mine, other = fs.acting_as(71000, 71000), fs.acting_as(72000, 72000)
        await mine.write_file(f"{path}/mine", b"mine")
        await other.write_file(f"{path}/other", b"other")
        await mine.remove(f"{path}/mine")
        await other.remove(f"{path}/other")
        assert [item.original for item in await found(mine, path)] == [f"{path}/mine"]
        assert {item.owner for item in await found(fs, path)} == {71000, 72000}
        (theirs,) = await found(other, path)
        with pytest.raises(AccessDenied):
            await mine.read_file(theirs.path)
        with pytest.raises(AccessDenied):
            await mine.trash.restore(theirs.path, f"{path}/stolen")
        with pytest.raises(AccessDenied):
            await mine.trash.empty(72000)
        assert await mine.trash.empty() == 1
        assert await found(fs, path, 71000) == []
        assert await other.trash.restore(theirs.path) == f"{path}/other"

    play(cluster, scene)


def test_what_is_put_back_while_the_trash_is_emptied_keeps_nothing_else_in_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(fs: AsyncFileSystem, path: str) -> None:
        names = [f"{path}/{name}" for name in "abc"]
        await fs.write_many([(name, b"x") for name in names])
        for name in names:
            await fs.chown(name, 73000, 73000)
            await fs.remove(name)
        listed = fs.list
        first, *_ = await found(fs, path, 73000)

        async def restored_meanwhile(directory: str) -> AsyncIterator[Entry]:
            async for entry in listed(directory):
                if directory.endswith("/73000") and first.path.endswith(f"/{entry.name}"):
                    await fs.trash.restore(first.path)
                yield entry

        monkeypatch.setattr(fs, "list", restored_meanwhile)
        assert await fs.trash.empty(73000) == 2
        assert await found(fs, path, 73000) == [] and await fs.read_file(first.original) == b"x"

    play(cluster, scene)


def test_what_has_been_there_for_its_time_is_gone(cluster: LocalCluster) -> None:
    async def scene(fs: AsyncFileSystem, path: str) -> None:
        await fs.trash.set(path, 1)
        await fs.write_file(f"{path}/a", b"x")
        await fs.remove(f"{path}/a")
        (item,) = await found(fs, path)
        for _ in range(240):
            if not await fs.exists(item.path):
                break
            await asyncio.sleep(0.25)
        assert not await fs.exists(item.path)
        assert await found(fs, path) == []

    play(cluster, scene)
