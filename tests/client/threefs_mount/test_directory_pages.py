"""On a real cluster."""

import asyncio
from functools import partial

from threefs_client import connect_async
from threefs_mount import directory_pages
from threefs_mount.listing import Names
from threefs_mount.listings import SMALL
from threefs_mount.prefetcher import Prefetcher

from tests.support.cluster import LocalCluster
from threefs.wire import meta_pb2 as pb


def test_names_and_the_attributes_of_few(cluster: LocalCluster) -> None:
    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.mkdir("/pages")
            await fs.create_many([f"/pages/{number:03}" for number in range(SMALL)])
            number = (await fs.stat("/pages")).inode
            prefetcher = Prefetcher(60.0, partial(directory_pages.attributes, fs.link), fs.link.clock)
            ask = partial(directory_pages.names, fs.link, prefetcher.ahead, number)

            async def fetch(after: bytes, limit: int, known: int, program: int | None = None) -> Names | None:
                return await ask(after, limit, known, program)

            for _ in range(2):
                names = await fetch(b"", 1024, 0, 1)
                assert names is not None and names.names == b"".join(b"%03d\0" % one for one in range(SMALL))
                assert names.listed is not None and names.listed.names == names.names
                [first, *_] = names.listed.inodes
                assert (
                    pb.Inode.FromString(first).inode == names.listed.numbers[0] == (await fs.stat("/pages/000")).inode
                )
            names = await fetch(b"", 1024, 0, 1)  # nobody has looked yet
            assert names is not None and names.listed is None and not prefetcher.ahead.count(number)
            [one], _ = await directory_pages.attributes(fs.link, number, b"", 1)
            prefetcher.ahead.asked(number, one.name, one.attributes, fs.link.clock.monotonic())
            while not prefetcher.ahead.count(number):  # somebody looks at one of them, so all are fetched
                await asyncio.sleep(0.001)
            again = await fetch(b"", 1024, 0, 1)
            assert again is not None and again.names == names.names and again.listed is not None
            assert await fetch(b"", 1024, names.token) is None
            await fs.create("/pages/new")
            names = await fetch(b"", 100, names.token)
            assert names is not None and names.more and names.last == b"099"
            rest = await fetch(names.last, 1024, 0)
            assert rest is not None and not rest.more and rest.last == b"new" and rest.token == names.token
            found, more = await directory_pages.attributes(fs.link, number, b"010", 2)
            assert [one.name for one in found] == [b"011", b"012"] and more and found[0].HasField("attributes")
            gone = await directory_pages.names(fs.link, prefetcher.ahead, 1 << 60, b"", 1024, 0, 1)
            assert gone is not None and not gone.names and not gone.more
            await prefetcher.close()

    asyncio.run(scene())
