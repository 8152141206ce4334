"""Pages of a trash."""

import pytest
from threefs_meta.ops.list_trash import list_trash

from tests.harness.meta_harness import MetaBench, at, run
from threefs.errors import AccessDenied, InvalidArgument, NotFound
from threefs.wire import meta_pb2 as pb


def test_pages_and_single_things() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", 1000)
        for number in range(7):
            await fs.create(f"/{number}")
            await fs.remove(f"/{number}")
        await fs.create("/.trash/0/stray")
        found, after, pages = [], b"", 0
        while True:
            request = pb.ListTrashRequest(place=at("/.trash/0"), after=after, limit=3)
            reply = await list_trash(fs.context, request)
            found += [item.path for item in reply.items]
            pages, after = pages + 1, reply.next
            if not reply.more:
                break
        assert found == [b"/%d" % number for number in range(7)] and pages == 3
        everything = await fs.trash()
        request = pb.ListTrashRequest(place=at("/.trash/0"), only=everything[4].name)
        assert list((await list_trash(fs.context, request)).items) == [everything[4]]
        request.only = b"stray"
        assert list((await list_trash(fs.context, request)).items) == []

    run(test)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_trash("/", 1000)
        await fs.create("/a")
        await fs.remove("/a")
        for path, error in (("/", InvalidArgument), ("/.trash/7", NotFound)):
            with pytest.raises(error):
                await list_trash(fs.context, pb.ListTrashRequest(place=at(path)))
        with pytest.raises(InvalidArgument):
            await list_trash(fs.context, pb.ListTrashRequest(place=at("/.trash/0"), after=b"n" * 256))
        with fs.user(1000, 1000), pytest.raises(AccessDenied):
            await fs.trash(0)

    run(test)
