"""Lengths of files under writers, truncates and crashes. The module says the rules and their reasons."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from threefs_meta.file.truncation import truncate_chunks
from threefs_meta.ops.sync import sync
from threefs_meta.ops.truncate import truncate

from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import Conflict, FileTooLarge, Unavailable
from threefs.ids import ChunkId, InodeId
from threefs.layout import MAX_FILE_BYTES, MIN_CHUNK_BYTES, from_wire
from threefs.wire import meta_pb2 as pb

SMALL = pb.Layout(chunk_bytes=MIN_CHUNK_BYTES)
CHUNK = MIN_CHUNK_BYTES


async def made(fs: MetaBench) -> pb.Inode:
    return (await fs.create("/f", session=SESSION, layout=SMALL)).inode


async def report(fs: MetaBench, inode: pb.Inode, end: int, exact: bool = False) -> pb.Inode:
    request = pb.SyncRequest(
        mutation=fs.mutation(),
        inode=inode.inode,
        length_hint=end,
        truncate_version=inode.truncate_version,
        exact=exact,
        written=True,
    )
    return (await sync(fs.context, request)).inode


def content(fs: MetaBench, inode: pb.Inode, length: int) -> bytes:
    """What a client reads: missing chunks and short ones are zeros."""
    data = bytearray(length)
    for chunk, part in fs.storage.data.items():
        if chunk.inode == inode.inode:
            begin = chunk.number * CHUNK
            room = max(0, min(len(part), length - begin))
            data[begin : begin + room] = part[:room]
    return bytes(data)


async def cut_to(fs: MetaBench, inode: pb.Inode, length: int, unchanged: bool = True) -> bool:
    async def answer() -> bool:
        return unchanged

    return await truncate_chunks(fs.chunks, from_wire(inode.layout), InodeId(inode.inode), length, 0, answer)


def once_swept(fs: MetaBench, action: Callable[[], Awaitable[object]]) -> list[int]:
    """Run `action` right after the first sweep of chunks, before the transaction that follows it."""
    original = fs.chunks.listing
    sweeps: list[int] = []

    async def listing(*args: object, **kwargs: object):  # type: ignore[no-untyped-def]
        async for page in original(*args, **kwargs):  # type: ignore[arg-type]
            yield page
        sweeps.append(1)
        if len(sweeps) == 1:
            await action()

    fs.chunks.listing = listing  # type: ignore[method-assign]
    return sweeps


async def test_reports_of_several_writers_meet_in_the_largest(bench: MetaBench) -> None:
    inode = await made(bench)
    ends = [5, 900, 30]
    await asyncio.gather(*(report(bench, inode, end) for end in ends))
    assert (await bench.stat("/f")).length == 900


@pytest.mark.parametrize("age_ms, kept", [(100, True), (0, True), (-100, True), (60_000, False), (-60_000, False)])
async def test_the_time_of_a_write_that_a_program_has_seen_stays(bench: MetaBench, age_ms: int, kept: bool) -> None:
    inode = await made(bench)
    bench.clock.advance(100)
    shown_ns = bench.clock.wall_ns() - age_ms * 1_000_000
    request = pb.SyncRequest(
        mutation=bench.mutation(), inode=inode.inode, length_hint=5, written=True, shown_ns=shown_ns
    )
    settled = (await sync(bench.context, request)).inode
    assert (settled.mtime_ns == shown_ns) is kept and settled.mtime_ns >= inode.mtime_ns
    assert settled.ctime_ns >= settled.mtime_ns


async def test_no_time_that_a_program_has_seen_comes_before_a_later_change(bench: MetaBench) -> None:
    inode = await made(bench)
    shown_ns = bench.clock.wall_ns()
    bench.clock.advance(1)
    changed = await report(bench, inode, 5)
    request = pb.SyncRequest(
        mutation=bench.mutation(), inode=inode.inode, length_hint=9, written=True, shown_ns=shown_ns
    )
    assert (await sync(bench.context, request)).inode.mtime_ns >= changed.mtime_ns > shown_ns


async def test_exact_asks_the_chains_and_never_makes_it_shorter(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 5 * CHUNK + 10, b"abc")
    assert (await report(bench, inode, 0, exact=True)).length == 5 * CHUNK + 13
    longer = await bench.truncate("/f", 20 * CHUNK)
    assert (await report(bench, longer, 0, exact=True)).length == 20 * CHUNK


async def test_largest_file(bench: MetaBench) -> None:
    inode = (await bench.create("/f")).inode
    assert (await bench.truncate("/f", MAX_FILE_BYTES)).length == MAX_FILE_BYTES
    for beyond in (MAX_FILE_BYTES + 1, (1 << 64) - 1):
        with pytest.raises(FileTooLarge):
            await bench.truncate("/f", beyond)
        with pytest.raises(FileTooLarge):
            await report(bench, inode, beyond)
    small = (await bench.create("/small", layout=SMALL)).inode
    with pytest.raises(FileTooLarge):
        await report(bench, small, CHUNK * (1 << 32) + 1)


@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 7, 3 * CHUNK, 3 * CHUNK + 5, 10 * CHUNK])
async def test_what_is_cut_off_reads_as_zeros_later(bench: MetaBench, length: int) -> None:
    inode = await made(bench)
    for number in range(4):
        await bench.write(inode, number * CHUNK, b"x" * CHUNK)
    await report(bench, inode, 4 * CHUNK)
    cut = await bench.truncate("/f", length)
    assert (cut.length, cut.truncate_version) == (length, inode.truncate_version + 1)
    await bench.truncate("/f", 5 * CHUNK)
    kept = min(length, 4 * CHUNK)
    assert content(bench, inode, 5 * CHUNK) == b"x" * kept + bytes(5 * CHUNK - kept)


async def test_an_extension_also_cuts_what_was_not_reported_yet(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    await bench.truncate("/f", 10)  # by the length that the service knows this makes it longer
    after = await bench.truncate("/f", 1000)
    assert content(bench, inode, after.length) == b"x" * 10 + bytes(990)


async def test_a_crash_after_the_sweep_destroys_but_does_not_revive(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    await report(bench, inode, 1000)
    await cut_to(bench, inode, 100)
    after = await bench.stat("/f")
    assert after.length == 1000
    assert content(bench, inode, 1000) == b"x" * 100 + bytes(900)


async def test_a_report_from_before_a_truncate_does_not_bring_the_old_length_back(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    await bench.truncate("/f", 10)
    assert (await report(bench, inode, 1000)).length == 10, "the chains say that those bytes are gone"


async def test_a_write_after_the_sweep_that_is_reported_late_is_kept(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    sweeps = once_swept(bench, lambda: bench.write(inode, 2 * CHUNK, b"late"))
    await bench.truncate("/f", 10)
    assert sweeps == [1]
    assert (await report(bench, inode, 2 * CHUNK + 4)).length == 2 * CHUNK + 4, "I11"
    assert content(bench, inode, 2 * CHUNK + 4)[-4:] == b"late"


async def test_a_write_that_is_reported_during_a_truncate_comes_before_it_with_all_its_bytes(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    await report(bench, inode, 1000)

    async def overwrite() -> None:
        await bench.write(inode, 500, b"y" * 100)
        bench.clock.advance(1)
        await report(bench, inode, 600)

    sweeps = once_swept(bench, overwrite)
    cut = await bench.truncate("/f", 10)
    assert sweeps == [1, 1], "the sweep was repeated"
    await bench.truncate("/f", 1000)
    assert cut.length == 10
    assert content(bench, inode, 1000) == b"x" * 10 + bytes(990)


async def test_a_measurement_is_void_when_a_truncate_comes_between(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    original = bench.chunks.file_length
    asked: list[int] = []

    async def file_length(*args: object, **kwargs: object) -> int:
        end = await original(*args, **kwargs)  # type: ignore[arg-type]
        asked.append(end)
        if len(asked) == 1:
            await bench.truncate("/f", 10)
        return end

    bench.chunks.file_length = file_length  # type: ignore[method-assign]
    assert (await report(bench, inode, 0, exact=True)).length == 10
    assert asked == [1000, 10]


async def test_storage_that_is_away_fails_the_call_and_changes_no_record(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    before = await bench.stat("/f")
    bench.storage.down.update(node.address for node in bench.cluster.routing.nodes.values())
    with pytest.raises(Unavailable):
        await bench.truncate("/f", 10)
    with pytest.raises(Unavailable):
        await report(bench, inode, 1000, exact=True)
    after = await bench.stat("/f")
    after.fence = before.fence
    assert after == before
    bench.storage.down.clear()
    assert (await report(bench, inode, 0, exact=True)).length == 1000


async def test_sweep_leaves_the_rest_alone(bench: MetaBench) -> None:
    inode = await made(bench)
    for number in range(3):
        await bench.write(inode, number * CHUNK, b"x" * 100)
    writes = bench.storage.applied
    assert await cut_to(bench, inode, CHUNK + 100)
    assert bench.storage.applied == writes + 1
    assert ChunkId(inode.inode, 1) in bench.storage.data and ChunkId(inode.inode, 2) not in bench.storage.data


def asked(fs: MetaBench, name: str) -> int:
    """How many chains were asked, since the last time."""
    count = sum(1 for _, method, _ in fs.storage.calls if method == name)
    fs.storage.calls.clear()
    return count


async def test_only_chains_that_a_file_can_have_reached_are_asked(bench: MetaBench) -> None:
    """A small file is a matter of one chain, however long its stripe; a larger one of more, as it grows."""
    layout = pb.Layout(chunk_bytes=CHUNK, stripe=2)
    file = (await bench.create("/a", session=SESSION, layout=layout)).inode
    assert file.chains_used == 1
    await bench.write(file, 0, b"x")
    asked(bench, "LastChunk")
    file = await bench.close(file, SESSION, exact=True, attempted_end=CHUNK, written=True)
    assert (file.length, file.chains_used, asked(bench, "LastChunk")) == (1, 1, 1)
    await bench.truncate("/a", 0)
    assert asked(bench, "ListChunks") == 1
    await bench.open("/a", session=SESSION)
    await bench.truncate("/a", 0)
    assert asked(bench, "ListChunks") == 2, "a writer may be anywhere"
    await bench.write(file, CHUNK, b"y")
    file = await bench.close(file, SESSION, length_hint=CHUNK + 1, written=True, truncate_version=2)
    assert (file.chains_used, asked(bench, "LastChunk")) == (2, 0)
    await bench.remove("/a")
    await bench.collect_all()
    assert asked(bench, "ListChunks") == 2 and bench.chunk_numbers(file) == []


async def test_a_writer_that_does_not_say_how_far_it_went_may_have_been_anywhere(bench: MetaBench) -> None:
    layout = pb.Layout(chunk_bytes=CHUNK, stripe=2)
    file = (await bench.create("/a", session=SESSION, layout=layout)).inode
    await bench.write(file, CHUNK, b"x")
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    file = await bench.stat("/a")
    assert (file.length, file.chains_used) == (CHUNK + 1, 0)
    await bench.open("/a", session=SESSION)
    assert (await bench.close(file, SESSION, length_hint=1, written=True)).chains_used == 0, "it stays unknown"
    await bench.remove("/a")
    await bench.collect_all()
    assert bench.chunk_numbers(file) == []


class Hangs:
    """The first call of a method stops before it begins, or after it has ended, until it is let go on."""

    def __init__(self) -> None:
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

    async def here(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.goes_on.wait()

    def before_the_listing(self, fs: MetaBench) -> None:
        listing = fs.chunks.listing

        async def slowly(*place: Any, **how: Any) -> AsyncIterator[Any]:
            await self.here()
            async for page in listing(*place, **how):
                yield page

        fs.chunks.listing = slowly  # type: ignore[method-assign]

    def after_the_listing(self, fs: MetaBench) -> None:
        listing = fs.chunks.listing

        async def slowly(*place: Any, **how: Any) -> AsyncIterator[Any]:
            async for page in listing(*place, **how):
                await self.here()
                yield page

        fs.chunks.listing = slowly  # type: ignore[method-assign]

    def before_the_removal(self, fs: MetaBench) -> None:
        apply = fs.chunks.apply

        async def slowly(*updates: Any, **how: Any) -> Any:
            await self.here()
            return await apply(*updates, **how)

        fs.chunks.apply = slowly  # type: ignore[method-assign]


@pytest.mark.parametrize("length", [0, 100])
@pytest.mark.parametrize("place", [Hangs.before_the_listing, Hangs.after_the_listing, Hangs.before_the_removal])
async def test_a_service_that_hung_removes_nothing_that_was_written_since(
    bench: MetaBench, place: Callable[[Hangs, MetaBench], None], length: int
) -> None:
    """It is to cut a file, and its client asks another one meanwhile, and then writes."""
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    await bench.write(inode, 3 * CHUNK, b"x" * 1000)
    await report(bench, inode, 3 * CHUNK + 1000)
    hangs = Hangs()
    place(hangs, bench)
    request = pb.TruncateRequest(mutation=bench.mutation(), place=at("/f"), length=length)
    hung = asyncio.create_task(truncate(bench.context, request))
    await hangs.reached.wait()
    after = (await truncate(bench.context, request)).inode
    await bench.write(after, 0, b"y" * 500)
    await bench.write(after, 3 * CHUNK, b"z" * 1000)
    await report(bench, after, 3 * CHUNK + 1000)
    hangs.goes_on.set()
    assert (await hung).inode.truncate_version == after.truncate_version, "it was done once"
    expected = b"y" * 500 + bytes(3 * CHUNK - 500) + b"z" * 1000
    assert content(bench, await bench.stat("/f"), 3 * CHUNK + 1000) == expected


def before_each_removal(fs: MetaBench, action: Callable[[], Awaitable[object]]) -> None:
    apply = fs.chunks.apply

    async def behind(*updates: Any, **how: Any) -> Any:
        fs.chunks.apply = apply  # type: ignore[method-assign]
        try:
            await action()
            return await apply(*updates, **how)
        finally:
            fs.chunks.apply = behind  # type: ignore[method-assign]

    fs.chunks.apply = behind  # type: ignore[method-assign]


async def test_what_is_written_while_it_is_cut_is_cut_in_another_pass(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    late = [b"y" * 700, b"z" * 300]

    async def overwrite() -> None:
        if late:
            await bench.write(inode, 500, late.pop())

    before_each_removal(bench, overwrite)
    assert await cut_to(bench, inode, 100)
    assert not late and content(bench, inode, 2000) == b"x" * 100 + bytes(1900)


async def test_writers_that_are_always_quicker_win_in_the_end(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    before_each_removal(bench, lambda: bench.write(inode, 500, b"y"))
    assert not await cut_to(bench, inode, 100)
    with pytest.raises(Conflict):
        await bench.truncate("/f", 100)


async def test_a_file_that_has_changed_is_not_cut(bench: MetaBench) -> None:
    inode = await made(bench)
    await bench.write(inode, 0, b"x" * 1000)
    assert not await cut_to(bench, inode, 100, unchanged=False)
    assert content(bench, inode, 1000) == b"x" * 1000
