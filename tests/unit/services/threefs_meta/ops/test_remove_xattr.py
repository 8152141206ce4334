"""Removing attributes."""

import struct

import pytest

from tests.harness.meta_harness import MetaBench
from threefs.errors import NoAttribute


async def test_only_what_is_there(bench: MetaBench) -> None:
    await bench.create("/a")
    await bench.set_xattr("/a", b"user.a", b"1")
    await bench.set_xattr("/a", b"user.b", b"2")
    bench.clock.advance(1)
    assert (await bench.remove_xattr("/a", b"user.a")).ctime_ns == bench.clock.wall_ns()
    assert await bench.xattrs("/a") == [b"user.b"]
    with pytest.raises(NoAttribute):
        await bench.remove_xattr("/a", b"user.a")


async def test_a_list_need_not_be_there(bench: MetaBench) -> None:
    await bench.create("/a")
    for name in (b"system.posix_acl_access", b"system.posix_acl_default"):
        await bench.remove_xattr("/a", name)
        await bench.remove_xattr("/", name)


async def test_the_mode_stays_as_the_mask_was(bench: MetaBench) -> None:
    await bench.create("/a")
    none = 0xFFFFFFFF
    rows = [(1, 6, none), (2, 7, 5), (4, 4, none), (16, 6, none), (32, 0, none)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    await bench.set_xattr("/a", b"system.posix_acl_access", acl)
    assert (await bench.remove_xattr("/a", b"system.posix_acl_access")).mode == 0o660
    assert await bench.xattrs("/a") == []
