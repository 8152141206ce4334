"""Pages of a directory."""

import pytest
from threefs_meta.ops.list import MAX_ENTRIES, list_entries

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import InvalidArgument, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb


async def test_pages_in_order_of_names(bench: MetaBench) -> None:
    names = sorted([f"{n:03}" for n in range(25)] + ["ä", "z", "Z"], key=str.encode)
    for name in names:
        await bench.create(f"/d/{name}", parents=True)
    await bench.create("/e")
    seen: list[str] = []
    after, more = b"", True
    while more:
        reply = (await list_entries(bench.context, pb.ListRequest(place=at("/d"), after=after, limit=7))).parsed()
        assert 0 < len(reply.entries) <= 7
        seen += [entry.name.decode() for entry in reply.entries]
        after, more = reply.entries[-1].name, reply.more
    assert seen == names


async def test_attributes_are_those_of_stat(bench: MetaBench) -> None:
    await bench.mkdir("/d/sub", parents=True)
    await bench.symlink("x" * 1000, f"/d/{'l' * 200}")
    bench.clock.advance(3)
    await bench.create("/d/sub/file")
    await bench.create("/d/file")
    reply = (await list_entries(bench.context, pb.ListRequest(place=at("/d"), attributes=True))).parsed()
    for entry in reply.entries:
        assert (entry.inode, entry.type) == (entry.attributes.inode, entry.attributes.type)
        assert entry.attributes == await bench.stat(f"/d/{entry.name.decode()}", follow=False)
    assert [entry.name for entry in reply.entries] == [b"file", b"l" * 200, b"sub"]
    plain = (await list_entries(bench.context, pb.ListRequest(place=at("/d")))).parsed()
    for entry in reply.entries:
        entry.ClearField("attributes")
    assert plain == reply
    assert not any(entry.HasField("attributes") for entry in plain.entries)


async def test_long_links_do_not_make_a_page_too_large(bench: MetaBench) -> None:
    for number in range(1100):
        await bench.symlink("t" * 4095, f"/{number:04}")
    first = (await list_entries(bench.context, pb.ListRequest(place=at("/"), attributes=True))).parsed()
    assert first.more and first.ByteSize() < 5 << 20
    assert all(entry.HasField("attributes") for entry in first.entries)
    behind = pb.ListRequest(place=at("/"), after=first.entries[-1].name, attributes=True)
    rest = (await list_entries(bench.context, behind)).parsed()
    assert len(first.entries) + len(rest.entries) == 1100 and not rest.more


async def test_limits_and_errors(bench: MetaBench) -> None:
    await bench.create("/a")
    reply = (await list_entries(bench.context, pb.ListRequest(place=at("/"), limit=MAX_ENTRIES * 1000))).parsed()
    assert len(reply.entries) == 1 and not reply.more
    assert not (await list_entries(bench.context, pb.ListRequest(place=at("/"), after=b"zzz"))).parsed().entries
    for place, after, error in (
        (at("/a"), b"", NotADirectory),
        (at("/b"), b"", NotFound),
        (at("/"), b"n" * 256, InvalidArgument),
    ):
        with pytest.raises(error):
            await list_entries(bench.context, pb.ListRequest(place=place, after=after))
