"""The trash time of a directory, and what the trash shows."""

import pytest
from threefs_meta.ops.trash import MAX_TRASH_S, list_trash
from threefs_meta.store import keys

from tests.harness import damage
from tests.harness.meta_harness import MetaBench, at
from threefs.errors import AccessDenied, InvalidArgument, NotADirectory, NotFound, PermissionDenied
from threefs.wire import meta_pb2 as pb


async def test_it_is_seen_until_it_is_taken_away(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert not (await bench.stat("/d")).HasField("trash_s")
    bench.clock.advance(1)
    assert (await bench.set_trash("/d", 60)).trash_s == 60
    found = await bench.stat("/d")
    assert (found.trash_s, found.ctime_ns) == (60, bench.clock.wall_ns())
    await bench.set_trash("/d", 0)
    assert (await bench.stat("/d")).HasField("trash_s")
    await bench.set_trash("/d", None)
    assert not (await bench.stat("/d")).HasField("trash_s")
    assert (await bench.stat("/.trash")).mode == 0o711


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    await bench.create("/f")
    for path, seconds, error in (
        ("/d", MAX_TRASH_S + 1, InvalidArgument),
        ("/f", 1, NotADirectory),
        ("/gone", 1, NotFound),
    ):
        with pytest.raises(error):
            await bench.set_trash(path, seconds)
    with bench.user(1000, 1000), pytest.raises(PermissionDenied):
        await bench.set_trash("/d", 1)
    await bench.set_trash("/d", 1)
    with pytest.raises(InvalidArgument):
        await bench.set_trash("/.trash", 1)


async def test_pages_and_single_things(bench: MetaBench) -> None:
    await bench.set_trash("/", 1000)
    for number in range(7):
        await bench.create(f"/{number}")
        await bench.remove(f"/{number}")
    await bench.create("/.trash/0/stray")
    found, after, pages = [], b"", 0
    while True:
        request = pb.ListTrashRequest(place=at("/.trash/0"), after=after, limit=3)
        reply = await list_trash(bench.context, request)
        found += [item.path for item in reply.items]
        pages, after = pages + 1, reply.next
        if not reply.more:
            break
    assert found == [b"/%d" % number for number in range(7)] and pages == 3
    everything = await bench.trash()
    request = pb.ListTrashRequest(place=at("/.trash/0"), only=everything[4].name)
    assert list((await list_trash(bench.context, request)).items) == [everything[4]]
    request.only = b"stray"
    assert list((await list_trash(bench.context, request)).items) == []


async def test_entries_that_are_not_listed(bench: MetaBench) -> None:
    await bench.set_trash("/", 1000)
    await bench.create("/a")
    await bench.remove("/a")
    for path, error in (("/", InvalidArgument), ("/.trash/7", NotFound)):
        with pytest.raises(error):
            await list_trash(bench.context, pb.ListTrashRequest(place=at(path)))
    with pytest.raises(InvalidArgument):
        await list_trash(bench.context, pb.ListTrashRequest(place=at("/.trash/0"), after=b"n" * 256))
    with bench.user(1000, 1000), pytest.raises(AccessDenied):
        await bench.trash(0)


@pytest.mark.parametrize("table", ["entry", "record", "inode"])
async def test_a_damaged_entry_hides_no_other_one(bench: MetaBench, table: str) -> None:
    await bench.set_trash("/", 1000)
    for name in ("/a", "/b", "/c"):
        await bench.create(name)
        await bench.remove(name)
    _, damaged, _ = await bench.trash()
    kept = {"record": keys.TRASH, "entry": (b"DENT|", b"DENT}")}
    rows = await bench.engine.begin().get_range(*kept.get(table, keys.TRASH))
    key = keys.inode(damaged.inode.inode) if table == "inode" else next(k for k, _ in rows if damaged.name in k)
    intact = await damage.get(bench, key)
    await damage.put(bench, key, b"damaged")
    assert [item.path for item in await bench.trash()] == [b"/a", b"/c"]
    request = pb.ListTrashRequest(place=at("/.trash/0"), only=damaged.name)
    assert not (await list_trash(bench.context, request)).items
    await damage.put(bench, key, intact)
    assert len(await bench.trash()) == 3
