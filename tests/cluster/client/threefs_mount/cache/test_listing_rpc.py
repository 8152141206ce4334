"""On a real cluster."""

import asyncio
from functools import partial

from threefs_client import connect_async
from threefs_mount.cache import listing_rpc
from threefs_mount.cache.cached_listing import SMALL_DIRECTORY, CachedListing
from threefs_mount.cache.dirent_columns import Attributes, DirentPage
from threefs_mount.cache.statahead import Prefetcher
from threefs_mount.cache.validity import Validity

from tests.harness.cluster import LocalCluster
from threefs.wire import meta_pb2 as pb


def test_names_and_the_attributes_of_few(cluster: LocalCluster) -> None:
    async def scene() -> None:
        async with await connect_async(cluster.address) as fs:
            await fs.mkdir("/pages")
            await fs.create_many([f"/pages/{number:03}" for number in range(SMALL_DIRECTORY)])
            number = (await fs.stat("/pages")).inode
            prefetcher = Prefetcher(Validity(60.0), partial(listing_rpc.fetch_entries, fs.context), fs.context.clock)
            ask = partial(listing_rpc.fetch_names, fs.context, prefetcher.statahead, number)

            async def fetch(
                after: bytes, limit: int, known: CachedListing | None = None, program: int | None = None
            ) -> tuple[DirentPage | None, Attributes | None]:
                return await ask(after, limit, known, program)

            def listing(names: DirentPage | None) -> CachedListing:
                assert names is not None
                return CachedListing(names, partial(fetch_more, 1024), lambda listing, size: None)

            async def fetch_more(limit: int, after: bytes) -> DirentPage:
                names, _ = await fetch(after, limit)
                assert names is not None
                return names

            known = None
            for _ in range(2):
                names, attributes = await fetch(b"", 1024, known, 1)
                if known is None:
                    assert names is not None and names.names == b"".join(
                        b"%03d\0" % one for one in range(SMALL_DIRECTORY)
                    )
                    known = listing(names)
                else:
                    assert names is None
                assert attributes is not None and len(attributes.inodes) == SMALL_DIRECTORY
                listed = known.with_attributes(number, attributes)
                inode = (await fs.stat("/pages/000")).inode
                assert pb.Inode.FromString(attributes.inodes[0]).inode == listed.numbers[0] == inode
            assert known is not None
            names, attributes = await fetch(b"", 1024, known, 1)  # nobody has looked yet
            assert names is None and attributes is None and not prefetcher.statahead.cached_count(number)
            [one], _ = await listing_rpc.fetch_entries(fs.context, number, b"", 1)
            prefetcher.statahead.record_lookup(number, one.name, one.attributes, fs.context.clock.monotonic())
            while not prefetcher.statahead.cached_count(number):  # somebody looks at one of them, so all are fetched
                await asyncio.sleep(0.001)
            names, attributes = await fetch(b"", 1024, known, 1)
            assert names is None and attributes is not None
            assert await fetch(b"", 1024, known) == (None, None)
            await fs.create("/pages/new")
            names, _ = await fetch(b"", 100, known)
            assert names is not None and names.more and names.last == b"099"
            rest, _ = await fetch(names.last, 1024)
            assert rest is not None and not rest.more and rest.last == b"new" and rest.token == names.token
            large = listing((await fetch(b"", 1024))[0])
            assert large.only_page is None
            for _ in range(3):
                assert await fetch(b"", 1024, large, 2) == (None, None)
            found, more = await listing_rpc.fetch_entries(fs.context, number, b"010", 2)
            assert [one.name for one in found] == [b"011", b"012"] and more and found[0].HasField("attributes")
            gone, attributes = await listing_rpc.fetch_names(
                fs.context, prefetcher.statahead, 1 << 60, b"", 1024, None, 1
            )
            assert gone is not None and not gone.names and not gone.more and attributes is None
            await prefetcher.close()

    asyncio.run(scene())
