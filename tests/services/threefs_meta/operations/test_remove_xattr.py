"""Removing attributes."""

import pytest

from tests.support.metadata import MetaBench, run
from threefs.errors import NoAttribute


def test_only_what_is_there() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        await fs.set_xattr("/a", b"user.a", b"1")
        await fs.set_xattr("/a", b"user.b", b"2")
        fs.clock.advance(1)
        assert (await fs.remove_xattr("/a", b"user.a")).ctime_ns == fs.clock.wall_ns()
        assert await fs.xattrs("/a") == [b"user.b"]
        with pytest.raises(NoAttribute):
            await fs.remove_xattr("/a", b"user.a")
        with pytest.raises(NoAttribute):
            await fs.remove_xattr("/a", b"system.posix_acl_access")

    run(test)
