"""What a mount answers from pages that it has fetched ahead, on a real cluster, without a kernel that remembers too."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client import connect_async
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_fuse.replies import Entry
from threefs_fuse.requests import Caller, Setting
from threefs_mount.cache.statahead import MISSES_BEFORE_PREFETCH
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.kernel import attrs
from threefs_mount.vfs import ThreefsVfs

from tests.harness.cluster import LocalCluster

CACHE_S = 3000.0
FILES = 60
ROOT = Caller(0, 0, 0)


def name(number: int) -> bytes:
    return b"%03d" % number


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


class Scene:
    """A directory with FILES files, and two mounts that see it."""

    def __init__(self, here: AsyncFileSystem, there: AsyncFileSystem, path: str, directory: int) -> None:
        self.here, self.there, self.path, self.directory = here, there, path, directory
        self.files = OpenFileTable(here.context, 1 << 20, Validity(CACHE_S))
        self.mount = ThreefsVfs(here.context, self.files, Validity(CACHE_S), lambda: None)
        self.pages = self.mount._cache.prefetcher
        self.gate = asyncio.Event()
        self.gate.set()
        fetch = self.pages._fetch

        async def gated(*place: Any) -> Any:
            page = await fetch(*place)
            await self.gate.wait()
            return page

        self.pages._fetch = gated

    def known(self, number: int) -> bool:
        """Whether a look is answered without asking."""
        answer = self.mount.lookup(self.directory, ROOT, name(number))
        if inspect.iscoroutine(answer):
            answer.close()
            return False
        return True

    async def look(self, this: bytes) -> Entry:
        told: Entry = await settled(self.mount.lookup(self.directory, ROOT, this))
        return told

    async def walk(self) -> None:
        """Enough looks for the rest to be fetched."""
        for number in range(MISSES_BEFORE_PREFETCH):
            await self.look(name(number))

    async def fetched(self) -> None:
        while not self.pages._sweeping:
            await asyncio.sleep(0.01)


def play(cluster: LocalCluster, request: pytest.FixtureRequest, scene: Callable[[Scene], Awaitable[None]]) -> None:
    path = f"/{request.node.name}"

    async def run() -> None:
        async with await connect_async(cluster.address) as here, await connect_async(cluster.address) as there:
            await there.mkdir(path)
            await there.create_many([f"{path}/{number:03}" for number in range(FILES)])
            playing = Scene(here, there, path, (await there.stat(path)).inode)
            try:
                await scene(playing)
            finally:
                await playing.mount.close()
                await playing.files.stop()

    asyncio.run(run())


def test_looks_are_answered_from_a_page(cluster: LocalCluster, request: pytest.FixtureRequest) -> None:
    async def scene(scene: Scene) -> None:
        await scene.walk()
        await scene.fetched()
        assert all(scene.known(number) for number in range(MISSES_BEFORE_PREFETCH, FILES))
        told, asked = await scene.look(name(20)), (await scene.there.stat(f"{scene.path}/020")).inode
        assert told.inode == asked and 0 < told.name_s < CACHE_S and told.name_s == told.attributes_s
        await scene.there.create(f"{scene.path}/new")
        assert (await scene.look(b"new")).inode

    play(cluster, request, scene)


@pytest.mark.parametrize("late", [False, True], ids=["page-there", "page-under-way"])
def test_what_is_changed_here_is_seen_at_once(
    cluster: LocalCluster, request: pytest.FixtureRequest, late: bool
) -> None:
    """Also if a page that shows what was before comes only then."""

    async def scene(scene: Scene) -> None:
        mount, directory = scene.mount, scene.directory
        if late:
            scene.gate.clear()
        await scene.walk()
        if not late:
            await scene.fetched()
        numbers = [(await scene.there.stat(f"{scene.path}/{name(number).decode()}")).inode for number in range(FILES)]
        await mount.setattr(numbers[10], ROOT, Setting(mode=0o600))
        await settled(mount.unlink(directory, ROOT, name(11)))
        await mount.rename(directory, ROOT, name(12), directory, name(13), 0)
        await mount.rename(directory, ROOT, name(14), directory, name(15), 2)
        await mount.link(directory, ROOT, numbers[16], b"another")
        handle = (await settled(mount.open(numbers[17], ROOT, os.O_WRONLY, False))).handle
        await settled(mount.write(numbers[17], ROOT, handle, 0, memoryview(b"12345"), 0, 0))
        assert (await scene.look(name(17))).size == 5
        await settled(mount.flush(numbers[17], ROOT, handle, 1))
        await settled(mount.release(numbers[17], ROOT, handle, 1, False))
        await mount.setxattr(numbers[18], ROOT, b"user.a", b"b", 0)
        await mount.setattr(numbers[19], ROOT, Setting(size=7))
        await settled(mount.unlink(directory, ROOT, name(20)))
        _, made = await settled(mount.create(directory, ROOT, name(20), os.O_WRONLY | os.O_EXCL, 0o640, 0))
        await settled(mount.release((await scene.look(name(20))).inode, ROOT, made.handle, 1, False))
        before = await scene.there.stat(f"{scene.path}/018")
        scene.gate.set()
        await scene.fetched()

        assert (await scene.look(name(10))).mode & 0o777 == 0o600
        assert await scene.look(name(11)) == attrs.ABSENT == await scene.look(name(12))
        assert (await scene.look(name(13))).inode == numbers[12]
        assert (await scene.look(name(14))).inode == numbers[15] and (await scene.look(name(15))).inode == numbers[14]
        assert (await scene.look(name(16))).nlink == 2
        assert (await scene.look(name(17))).size == 5
        assert (await scene.look(name(18))).ctime_ns == before.ctime_ns
        assert (await scene.look(name(19))).size == 7
        assert (await scene.look(name(20))).mode & 0o777 == 0o640
        assert scene.known(21)

    play(cluster, request, scene)


def test_a_file_that_was_replaced_elsewhere_is_found_when_it_is_opened(
    cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    """The kernel looks again when it is told that what it opens is not there any more."""

    async def scene(scene: Scene) -> None:
        await scene.walk()
        await scene.fetched()
        old = (await scene.look(name(30))).inode
        await scene.there.create(f"{scene.path}/new")
        await scene.there.rename(f"{scene.path}/new", f"{scene.path}/030")
        assert (await scene.look(name(30))).inode == old
        with pytest.raises(Exception) as refused:
            await settled(scene.mount.open(old, ROOT, os.O_RDONLY, False))
        assert scene.mount.error_number(refused.value) == 116  # ESTALE
        assert (await scene.look(name(30))).inode != old

    play(cluster, request, scene)


def test_a_question_for_attributes_gets_the_present_ones(cluster: LocalCluster, request: pytest.FixtureRequest) -> None:
    async def scene(scene: Scene) -> None:
        await scene.walk()
        await scene.fetched()
        number = (await scene.look(name(40))).inode
        await scene.there.chmod(f"{scene.path}/040", 0o604)
        assert (await scene.look(name(40))).mode & 0o777 != 0o604
        assert (await settled(scene.mount.getattr(number, ROOT, None))).mode & 0o777 == 0o604
        assert (await scene.look(name(40))).mode & 0o777 == 0o604

    play(cluster, request, scene)
