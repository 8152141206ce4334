"""Room for appends."""

import asyncio

import pytest
from threefs_meta.operations.reserve import reserve

from tests.support.metadata import SESSION, MetaBench, run
from threefs.errors import FileTooLarge, InvalidArgument, SessionLost
from threefs.wire import meta_pb2 as pb


async def ask(fs: MetaBench, inode: int, length: int, session: bytes = SESSION) -> int:
    request = pb.ReserveRequest(mutation=fs.mutation(), inode=inode, session=session, length=length)
    return (await reserve(fs.context, request)).offset


@pytest.mark.parametrize("seed", range(3))
def test_nobody_gets_what_another_one_has(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        fs.clock.advance(1)
        offsets = await asyncio.gather(*(ask(fs, made.inode, 10) for _ in range(5)))
        assert sorted(offsets) == list(range(0, 50, 10))
        found = await fs.stat("/a")
        assert (found.length, found.mtime_ns) == (50, fs.clock.wall_ns())

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_file_gets_as_long_as_wanted_and_never_shorter(seed: int) -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        for end, length in ((100, 100), (30, 100), (101, 101)):
            request = pb.ReserveRequest(mutation=fs.mutation(), inode=made.inode, session=SESSION, end=end)
            first = await reserve(fs.context, request)
            assert (await reserve(fs.context, request)) == first, "sent again, the answer is the same"
            assert first.inode.length == (await fs.stat("/a")).length == length
        for wrong in (pb.ReserveRequest(length=1, end=1), pb.ReserveRequest(end=1 << 63)):
            wrong.mutation.CopyFrom(fs.mutation())
            wrong.inode, wrong.session = made.inode, SESSION
            with pytest.raises((InvalidArgument, FileTooLarge)):
                await reserve(fs.context, wrong)

    run(test, conflict_rate=0.1, unknown_rate=0.1, seed=seed)


def test_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        for length, session, error in (
            (0, SESSION, InvalidArgument),
            (1, b"x" * 16, SessionLost),
            (1, b"", SessionLost),
            (1 << 63, SESSION, FileTooLarge),
        ):
            with pytest.raises(error):
                await ask(fs, made.inode, length, session)
        with pytest.raises(SessionLost):
            await ask(fs, 99, 1)

    run(test)
