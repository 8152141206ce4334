"""Closing files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_meta.ops.close import close
from threefs_meta.store import keys

from tests.harness.many_changes import answered, stored
from tests.harness.meta_harness import SESSION, MetaBench, with_bench
from threefs.errors import FileTooLarge, SessionLost, ThreefsError
from threefs.wire import meta_pb2 as pb


async def test_the_length_is_merged_and_the_session_ends(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    bench.clock.advance(1)
    closed = await bench.close(made, SESSION, length_hint=10, written=True)
    assert closed.length == 10 and closed.mtime_ns == made.mtime_ns + 10**9
    assert await bench.stat("/a") == closed
    assert not await bench.engine.begin().get_range(*keys.SESSIONS)
    with pytest.raises(SessionLost):
        await bench.close(made, SESSION, length_hint=20)
    assert (await bench.stat("/a")).length == 10


async def test_nothing_written_changes_nothing(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    bench.clock.advance(1)
    assert await bench.close(made, SESSION) == made


async def test_exact_after_a_write_of_unknown_outcome(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    await bench.write(made, 3 << 20, b"abc")
    assert (await bench.close(made, SESSION, length_hint=0, exact=True)).length == (3 << 20) + 3


async def test_lengths_that_cannot_be_leave_the_session_open(bench: MetaBench) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    with pytest.raises(FileTooLarge):
        await bench.close(made, SESSION, length_hint=(1 << 64) - 1, written=True)
    await bench.close(made, SESSION)


async def test_an_unknown_inode_or_session(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    with pytest.raises(SessionLost):
        await bench.close(made, SESSION)
    made.inode = 77
    with pytest.raises(SessionLost):
        await bench.close(made)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9), st.booleans()), max_size=9))
@settings(max_examples=40)
@with_bench
async def test_closed_together_is_closed_one_by_one(fs: MetaBench, wanted: list[tuple[int, int, int, bool]]) -> None:
    async def closed(fs: MetaBench, request: pb.CloseRequest) -> tuple[int, int]:
        request.mutation.CopyFrom(fs.mutation())
        try:
            return 0, (await close(fs.context, request)).inode.length
        except ThreefsError as error:
            return error.code, 0

    other = await MetaBench().start()
    found = []
    for bench in (fs, other):
        files = []
        for number in range(3):
            for session in range(2):  # the third one nobody knows
                file = await bench.create(f"/{number}", session=bytes([session]) * 16)
            files.append(file.inode.inode)
        closes = [
            pb.CloseRequest(inode=files[file], session=bytes([session]) * 16, length_hint=end, written=written)
            for file, session, end, written in wanted
        ]
        if bench is fs:
            changes = [pb.Change(close=one) for one in closes]
            request = pb.BatchRequest(mutation=fs.mutation(), changes=changes)
            results = (await answered(fs, request)).results
            found.append([(result.code, result.file.inode.length) for result in results])
        else:
            found.append([await closed(bench, one) for one in closes])
    assert found[0] == found[1]
    assert await stored(fs) == await stored(other)


async def test_a_close_that_asks_chunks_is_left_out_of_those_together(bench: MetaBench) -> None:
    files = [(await bench.create(f"/{number}", session=SESSION)).inode.inode for number in range(4)]
    closes = [pb.CloseRequest(inode=file, session=SESSION, length_hint=5, written=True) for file in files]
    closes[1].exact = True
    closes[2].truncate_version = 7
    request = pb.BatchRequest(mutation=bench.mutation(), changes=[pb.Change(close=one) for one in closes])
    assert [result.retry_alone for result in (await answered(bench, request)).results] == [False, True, True, False]
    assert [(await bench.stat(f"/{number}")).length for number in range(4)] == [5, 0, 0, 5]
