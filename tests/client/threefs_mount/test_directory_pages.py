"""On a real cluster."""

import asyncio
from functools import partial

from threefs_client import connect_async
from threefs_mount import directory_pages
from threefs_mount.listings import SMALL
from threefs_mount.prefetcher import Prefetcher

from tests.support.cluster import LocalCluster


def test_names_and_the_attributes_of_few(cluster: LocalCluster) -> None:
    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.mkdir("/pages")
            await fs.create_many([f"/pages/{number:03}" for number in range(SMALL)])
            number = (await fs.stat("/pages")).inode
            prefetcher = Prefetcher(60.0, partial(directory_pages.attributes, fs.link), fs.link.clock)
            fetch = partial(directory_pages.names, fs.link, prefetcher, number)
            names = await fetch(b"", 1024, 0)
            assert names is not None and names.names == b"".join(b"%03d\0" % one for one in range(SMALL))
            assert not prefetcher.ahead.count(number)
            [first], _ = await directory_pages.attributes(fs.link, number, b"", 1)
            prefetcher.ahead.asked(number, first.name, first.attributes, fs.link.clock.monotonic())
            while not prefetcher.ahead.count(number):  # somebody looks at one of them, so all are fetched
                await asyncio.sleep(0.001)
            prefetcher.ahead.touch_name(number, b"005")
            again = await fetch(b"", 1024, 0)
            assert again is not None and again.names == names.names
            known = prefetcher.ahead.find(number, b"005", fs.link.clock.monotonic())
            assert known is not None and known.inode.inode == (await fs.stat("/pages/005")).inode
            assert await fetch(b"", 1024, names.token) is None
            await fs.create("/pages/new")
            names = await fetch(b"", 100, names.token)
            assert names is not None and names.more and names.last == b"099"
            rest = await fetch(names.last, 1024, 0)
            assert rest is not None and not rest.more and rest.last == b"new" and rest.token == names.token
            found, more = await directory_pages.attributes(fs.link, number, b"010", 2)
            assert [one.name for one in found] == [b"011", b"012"] and more and found[0].HasField("attributes")
            gone = await directory_pages.names(fs.link, prefetcher, 1 << 60, b"", 1024, 0)
            assert gone is not None and not gone.names and not gone.more
            await prefetcher.close()

    asyncio.run(scene())
