"""Write sessions, and what stands under them."""

import pytest
from threefs_meta.lease import write_sessions

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench
from threefs.errors import InvalidArgument, SessionLost


def test_their_names() -> None:
    write_sessions.check_id(b"")
    write_sessions.check_id(b"s" * 16)
    for session in (b"s", b"s" * 15, b"s" * 17):
        with pytest.raises(InvalidArgument, match="16 bytes"):
            write_sessions.check_id(session)


async def test_a_session_stands_from_its_begin_to_its_end(bench: MetaBench) -> None:
    file = (await bench.create("/a", session=SESSION)).inode
    ns = bench.context.namespace(bench.engine.begin())
    assert await write_sessions.require(ns, file, SESSION, file.inode) is file
    assert (
        await write_sessions.is_open(ns, file.inode) and await write_sessions.chains_used(bench.context, ns, file) == 0
    )
    await write_sessions.require_leased(ns, file.inode, SESSION, CLIENT, "/a")
    for wrong in (b"o" * 16, b""):
        with pytest.raises(SessionLost):
            await write_sessions.require(ns, file, wrong, file.inode)
    with pytest.raises(SessionLost):
        await write_sessions.require(ns, None, SESSION, file.inode)
    with pytest.raises(SessionLost, match="/a is not open"):
        await write_sessions.require_leased(ns, file.inode, SESSION, b"o" * 16, "/a")
    await bench.close(file, SESSION)
    ns = bench.context.namespace(bench.engine.begin())
    assert (
        not await write_sessions.is_open(ns, file.inode)
        and await write_sessions.chains_used(bench.context, ns, file) == 1
    )
    with pytest.raises(SessionLost):
        await write_sessions.require(ns, file, SESSION, file.inode)
