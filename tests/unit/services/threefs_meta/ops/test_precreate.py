"""Files that are made ahead of time, without names."""

import pytest
from threefs_meta.ops.precreate import MAX_FILES
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench
from threefs.errors import AccessDenied, InvalidArgument, NotADirectory, NotFound
from threefs.layout import from_wire
from threefs.wire import meta_pb2 as pb


async def count(bench: MetaBench, table: tuple[bytes, bytes]) -> int:
    return len(await bench.engine.begin().get_range(*table))


async def test_they_have_numbers_and_chains_of_their_own_and_the_layout_of_the_directory(bench: MetaBench) -> None:
    await bench.mkdir("/d", layout=pb.Layout(chunk_bytes=1 << 17))
    made = await bench.precreate("/d/some", 20)
    assert len({inode.inode for inode in made}) == 20 and await bench.names("/d") == []
    assert {from_wire(inode.layout).chunk_bytes for inode in made} == {1 << 17}
    assert len({inode.layout.seed for inode in made}) == 20
    assert all(inode.unnamed and not inode.nlink for inode in made)


async def test_all_of_them_are_made_in_one_transaction(bench: MetaBench) -> None:
    await bench.create("/first", session=b"f" * 16)  # the first lease and the first block of numbers
    before = bench.engine.version
    await bench.precreate("/a", MAX_FILES)
    assert bench.engine.version == before + 1


async def test_the_end_of_their_session_removes_them_and_their_chunks(bench: MetaBench) -> None:
    first, second = await bench.precreate("/a", 2)
    await bench.write(first, 0, b"content")
    await bench.close(first, SESSION)
    await bench.collect_all()
    assert bench.chunk_numbers(first) == [] and await count(bench, keys.INODES) == 2, "the root and the other one"
    await bench.close(second, SESSION)
    await bench.collect_all()
    assert await count(bench, keys.INODES) == 1 and await count(bench, keys.SESSIONS) == 0


async def test_with_the_lease_of_a_dead_client_they_and_their_chunks_go(bench: MetaBench) -> None:
    made = await bench.precreate("/a", 3)
    await bench.write(made[0], 0, b"content")
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    await bench.collect_all()
    assert bench.chunk_numbers(made[0]) == [] and await count(bench, keys.INODES) == 1


async def test_a_living_client_keeps_them(bench: MetaBench) -> None:
    [made] = await bench.precreate("/a")
    await bench.write(made, 0, b"content")
    for _ in range(5):
        await bench.pass_ticks(3)
        await bench.renew(CLIENT)
        await bench.lease_reaper.reap()
        await bench.collector.collect()
    assert bench.chunk_numbers(made) == [0]


async def test_invalid_requests_are_refused(bench: MetaBench) -> None:
    for number in (0, MAX_FILES + 1):
        with pytest.raises(InvalidArgument, match="1 to 64"):
            await bench.precreate("/a", number)
    with pytest.raises(InvalidArgument, match="write session"):
        await bench.precreate("/a", session=b"")
    with pytest.raises(InvalidArgument, match="16 bytes"):
        await bench.precreate("/a", session=b"short")


async def test_a_place_that_permits_no_file_is_reported_by_the_publication(bench: MetaBench) -> None:
    await bench.mkdir("/closed", mode=0o700, layout=pb.Layout(chunk_bytes=1 << 17))
    await bench.create("/file")
    places = {"/a": AccessDenied, "/closed/a": AccessDenied, "/none/../a": NotFound, "/file/a": NotADirectory}
    with bench.user(1000, 1000):
        for place, error in places.items():
            [made] = await bench.precreate(place)
            assert from_wire(made.layout).chunk_bytes != 1 << 17, "the layout of the root"
            with pytest.raises(error):
                await bench.publish(made, place)


async def test_where_directories_are_still_to_be_made_the_one_above_decides(bench: MetaBench) -> None:
    await bench.mkdir("/d", layout=pb.Layout(chunk_bytes=1 << 17))
    [made] = await bench.precreate("/d/e/f/some")
    assert made.layout.chunk_bytes == 1 << 17
