"""Small files: what one costs, counted; and what is left when its writer dies at any moment."""

import asyncio

import pytest
from threefs_client import AsyncFileSystem

from tests.sim.small_files import Counts, SentCalls, chunks, client, inodes, play
from tests.sim.world import LEASE_S, World
from threefs.errors import NotFound
from threefs.ids import ROOT
from threefs.leases import client_lease_s

_FILES = 20
#: What a dead client held is released, then the collector frees it.
_FORGOTTEN_S = 4 * client_lease_s(LEASE_S)


def content(number: int) -> bytes:
    return b"%04d" % number * (100 + number)


async def _write_open(fs: AsyncFileSystem, number: int, data: bytes) -> None:
    async with await fs.open(f"/d/f{number}", "wb") as file:
        await file.write(data)


async def _write_whole(fs: AsyncFileSystem, number: int, data: bytes) -> None:
    await fs.write_file(f"/d/f{number}", data)


async def _replace_whole(fs: AsyncFileSystem, number: int, data: bytes) -> None:
    await fs.write_file("/d/same", data, replace=True)


@pytest.mark.parametrize(
    ("write", "calls", "commits"),
    [
        (_write_open, {"Create": _FILES, "Close": _FILES}, 2 * _FILES),
        (_write_whole, {"Precreate": 1, "Publish": _FILES}, _FILES + 1),
        (_replace_whole, {"Precreate": 1, "Publish": _FILES}, _FILES + 1),
    ],
)
def test_the_cost_of_a_small_file(write, calls, commits) -> None:  # type: ignore[no-untyped-def]
    """A file of 4 KiB: one sync per replica. Written whole, its name costs one commit."""

    async def scene(world: World) -> None:
        counts = Counts(world)

        async def work(fs: AsyncFileSystem) -> None:
            await fs.mkdir("/d")
            for number in range(63):  # so that the next call precreates 64
                await fs.write_file(f"/d/warm{number}", b"warm")
            counts.begin()
            for number in range(_FILES):
                await write(fs, number, bytes(4096))

        _, task = client(world, "c1", work)
        await task
        assert counts.calls == calls
        assert counts.commits == commits
        assert counts.syncs == dict.fromkeys(world.storage_hosts, _FILES)

    play(scene)


def test_the_cost_of_many_small_files_together() -> None:
    async def scene(world: World) -> None:
        counts = Counts(world)

        async def work(fs: AsyncFileSystem) -> None:
            await fs.mkdir("/d")
            await fs.write_file("/d/warm", b"warm")
            counts.begin()
            assert await fs.write_many((f"/d/f{number}", bytes(4096)) for number in range(64)) == [None] * 64

        _, task = client(world, "c1", work)
        await task
        assert counts.calls == {"Precreate": 1, "Batch": 1} and counts.commits == 2
        assert all(count <= 64 for count in counts.syncs.values()), "less where they share a sync"

    play(scene)


def test_the_cost_of_reading_a_small_file() -> None:
    """One call to the metadata and one to storage; of many files together one for each storage process."""

    async def scene(world: World) -> None:
        counts = Counts(world)

        async def work(fs: AsyncFileSystem) -> None:
            sent = SentCalls(fs)
            for number in range(_FILES):
                await fs.write_file(f"/f{number}", content(number))
            counts.begin()
            sent.begin_again()
            for number in range(_FILES):
                assert await fs.read_file(f"/f{number}") == content(number)
            assert counts.calls == {"Open": _FILES} and counts.commits == 0
            assert sent.counts == {"Open": _FILES, "Read": _FILES}
            counts.begin()
            sent.begin_again()
            rows = [(f"/f{number}", 0, len(content(number))) for number in range(_FILES)]
            assert [bytes(view) for view in await fs.read_batch(rows)] == [content(number) for number in range(_FILES)]
            assert counts.calls == {"BatchStat": 1} and counts.commits == 0
            assert sent.counts.keys() == {"BatchStat", "Read"} and sent.counts["Read"] <= len(world.storage_hosts)

        _, task = client(world, "c1", work)
        await task

    play(scene)


async def _found(fs: AsyncFileSystem) -> dict[str, bytes]:
    return {entry.name: await fs.read_file(f"/d/{entry.name}") async for entry in fs.list("/d")}


@pytest.mark.parametrize("moment", range(24))
def test_a_writer_that_dies_at_any_moment_leaves_whole_files_and_nothing_else(moment: int) -> None:
    """Somebody else looks all the time, and sees no file that is not whole."""

    async def scene(world: World) -> None:
        begun, seen, stop = asyncio.Event(), set[str](), asyncio.Event()

        async def write(fs: AsyncFileSystem) -> None:
            await fs.mkdir("/d")
            await fs.write_file("/d/old", b"old", replace=True)
            begun.set()
            for number in range(_FILES):
                await fs.write_file(f"/d/f{number}", content(number))
                await fs.write_file("/d/old", b"new" * (1 + number), replace=True)
            await fs.write_many((f"/d/g{number}", content(number)) for number in range(_FILES))

        async def look(fs: AsyncFileSystem) -> None:
            while not stop.is_set():
                try:
                    found = await _found(fs)
                except NotFound:  # it was replaced between the listing and the read
                    continue
                finally:
                    await asyncio.sleep(0.001)
                for name, data in found.items():
                    seen.add(name)
                    whole = data == b"old" or data == b"new" * (len(data) // 3)
                    assert whole if name == "old" else data == content(int(name[1:])), f"{name} is {data[:20]!r}"
            final = await _found(fs)
            assert seen <= final.keys(), "what was seen stays"
            held = {(await fs.stat(f"/d/{name}")).inode for name in final}
            await asyncio.sleep(_FORGOTTEN_S)
            assert inodes(world) == {ROOT, (await fs.stat("/d")).inode, *held}, "nothing that was made ahead is left"
            assert {chunk.inode for chunk in chunks(world)} == held, "no chunk is left without a file"

        _, looking = client(world, "c2", look)
        writer, _ = client(world, "c1", write)
        await begun.wait()
        await asyncio.sleep(0.004 * moment)
        writer.kill()
        await asyncio.sleep(0.05)
        stop.set()
        await looking

    play(scene, moment)
