"""Closing files."""

import pytest
from threefs_meta import keys

from tests.support.metadata import SESSION, MetaBench, run
from threefs.errors import FileTooLarge, SessionLost


def test_the_length_is_settled_and_the_session_ends() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        fs.clock.advance(1)
        closed = await fs.close(made, SESSION, length_hint=10, written=True)
        assert closed.length == 10 and closed.mtime_ns == made.mtime_ns + 10**9
        assert await fs.stat("/a") == closed
        assert not await fs.engine.begin().get_range(*keys.SESSIONS)
        with pytest.raises(SessionLost):
            await fs.close(made, SESSION, length_hint=20)
        assert (await fs.stat("/a")).length == 10

    run(test)


def test_nothing_written_changes_nothing() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        fs.clock.advance(1)
        assert await fs.close(made, SESSION) == made

    run(test)


def test_exact_after_a_write_of_unknown_outcome() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.write(made, 3 << 20, b"abc")
        assert (await fs.close(made, SESSION, length_hint=0, exact=True)).length == (3 << 20) + 3

    run(test)


def test_lengths_that_cannot_be_leave_the_session_open() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        with pytest.raises(FileTooLarge):
            await fs.close(made, SESSION, length_hint=(1 << 64) - 1, written=True)
        await fs.close(made, SESSION)

    run(test)


def test_an_unknown_inode_or_session() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        with pytest.raises(SessionLost):
            await fs.close(made, SESSION)
        made.inode = 77
        with pytest.raises(SessionLost):
            await fs.close(made)

    run(test)
