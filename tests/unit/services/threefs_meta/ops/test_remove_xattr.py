"""Removing attributes."""

import struct

import pytest

from tests.harness.meta_harness import MetaBench, run
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

    run(test)


def test_a_list_need_not_be_there() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        for name in (b"system.posix_acl_access", b"system.posix_acl_default"):
            await fs.remove_xattr("/a", name)
            await fs.remove_xattr("/", name)

    run(test)


def test_the_mode_stays_as_the_mask_was() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/a")
        none = 0xFFFFFFFF
        rows = [(1, 6, none), (2, 7, 5), (4, 4, none), (16, 6, none), (32, 0, none)]
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
        await fs.set_xattr("/a", b"system.posix_acl_access", acl)
        assert (await fs.remove_xattr("/a", b"system.posix_acl_access")).mode == 0o660
        assert await fs.xattrs("/a") == []

    run(test)
