"""Truncating by name. Races and crashes are in test_lengths."""

import pytest
from threefs_meta.ops.truncate import truncate

from tests.harness.meta_harness import CLIENT, MetaBench
from threefs.errors import AccessDenied, InvalidArgument, IsADirectory, NotFound, SessionLost
from threefs.wire import meta_pb2 as pb


async def test_shorter_and_longer(bench: MetaBench) -> None:
    made = (await bench.create("/a")).inode
    await bench.symlink("a", "/l")
    bench.clock.advance(1)
    for version, length in enumerate((100, 50, 0, 1 << 40), 1):
        cut = await bench.truncate("/l", length)
        assert (cut.length, cut.truncate_version) == (length, version)
    assert cut.mtime_ns == bench.clock.wall_ns()
    assert await bench.stat("/a") == cut
    assert bench.chunk_numbers(made) == [], "a hole needs no chunk"


async def test_what_has_no_length(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    link = await bench.symlink("d", "/l")
    for path, error in (("/d", IsADirectory), ("/l", IsADirectory), ("/gone", NotFound)):
        with pytest.raises(error):
            await bench.truncate(path, 5)
    with pytest.raises(InvalidArgument):
        await truncate(
            bench.context, pb.TruncateRequest(mutation=bench.mutation(), place=pb.Place(base=link.inode), length=1)
        )


async def test_an_open_session_stands_for_the_permission_and_others_content_drops_privileges(bench: MetaBench) -> None:
    session = b"w" * 16
    await bench.create("/a", mode=0o644)
    await bench.set("/a", uid=5, gid=5, mode=0o6755)
    with bench.user(5, 5):
        await bench.open("/a", session=session)
    await bench.set("/a", mode=0o6455)
    with bench.user(5, 5):
        with pytest.raises(AccessDenied):
            await bench.truncate("/a", 3)
        assert (await bench.truncate("/a", 3, session)).mode == 0o455
        with pytest.raises(SessionLost):
            await bench.truncate("/a", 3, b"x" * 16)
    await bench.set("/a", mode=0o6455)
    assert (await bench.truncate("/a", 3)).mode == 0o6455
    made = await bench.stat("/a")
    with bench.user(5, 5):
        assert (await bench.close(made, session, written=True)).mode == 0o455


async def test_a_session_of_a_lease_that_has_ended_cuts_nothing(bench: MetaBench) -> None:
    """Its end is only a matter of time, and the locks of its client may be somebody else's already."""
    session = b"w" * 16
    await bench.create("/a")
    await bench.open("/a", session=session)
    lease = (await bench.renew(CLIENT)).lease
    assert (await bench.truncate("/a", 9, session)).length == 9
    await bench.renew(CLIENT, end=lease)
    with pytest.raises(SessionLost):
        await bench.truncate("/a", 3, session)
    assert (await bench.stat("/a")).length == 9
