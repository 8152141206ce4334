"""Truncating by name. Races and crashes are in test_lengths."""

import pytest
from threefs_meta.ops.truncate import truncate

from tests.harness.meta_harness import CLIENT, MetaBench, run
from threefs.errors import AccessDenied, InvalidArgument, IsADirectory, NotFound, SessionLost
from threefs.wire import meta_pb2 as pb


def test_shorter_and_longer() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        await fs.symlink("a", "/l")
        fs.clock.advance(1)
        for version, length in enumerate((100, 50, 0, 1 << 40), 1):
            cut = await fs.truncate("/l", length)
            assert (cut.length, cut.truncate_version) == (length, version)
        assert cut.mtime_ns == fs.clock.wall_ns()
        assert await fs.stat("/a") == cut
        assert fs.chunk_numbers(made) == [], "a hole needs no chunk"

    run(test)


def test_what_has_no_length() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        link = await fs.symlink("d", "/l")
        for path, error in (("/d", IsADirectory), ("/l", IsADirectory), ("/gone", NotFound)):
            with pytest.raises(error):
                await fs.truncate(path, 5)
        with pytest.raises(InvalidArgument):
            await truncate(
                fs.context, pb.TruncateRequest(mutation=fs.mutation(), place=pb.Place(base=link.inode), length=1)
            )

    run(test)


def test_an_open_session_stands_for_the_permission_and_others_content_drops_privileges() -> None:
    async def test(fs: MetaBench) -> None:
        session = b"w" * 16
        await fs.create("/a", mode=0o644)
        await fs.set("/a", uid=5, gid=5, mode=0o6755)
        with fs.user(5, 5):
            await fs.open("/a", session=session)
        await fs.set("/a", mode=0o6455)
        with fs.user(5, 5):
            with pytest.raises(AccessDenied):
                await fs.truncate("/a", 3)
            assert (await fs.truncate("/a", 3, session)).mode == 0o455
            with pytest.raises(SessionLost):
                await fs.truncate("/a", 3, b"x" * 16)
        await fs.set("/a", mode=0o6455)
        assert (await fs.truncate("/a", 3)).mode == 0o6455
        made = await fs.stat("/a")
        with fs.user(5, 5):
            assert (await fs.close(made, session, written=True)).mode == 0o455

    run(test)


def test_a_session_of_a_lease_that_has_ended_cuts_nothing() -> None:
    """Its end is only a matter of time, and the locks of its client may be somebody else's already."""

    async def test(fs: MetaBench) -> None:
        session = b"w" * 16
        await fs.create("/a")
        await fs.open("/a", session=session)
        lease = (await fs.renew(CLIENT)).lease
        assert (await fs.truncate("/a", 9, session)).length == 9
        await fs.renew(CLIENT, end=lease)
        with pytest.raises(SessionLost):
            await fs.truncate("/a", 3, session)
        assert (await fs.stat("/a")).length == 9

    run(test)
