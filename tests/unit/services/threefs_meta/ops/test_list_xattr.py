"""Listing attributes."""

from threefs_meta.access import acls

from tests.harness.meta_harness import MetaBench
from tests.unit.services.threefs_meta.access.test_acls import USER, acl


async def test_each_sees_what_is_theirs_to_see(bench: MetaBench) -> None:
    await bench.mkdir("/d")
    assert await bench.xattrs("/d") == []
    names = [b"security.c", b"trusted.b", b"user.a"]
    for name in names:
        await bench.set_xattr("/d", name, b"")
    await bench.set_xattr("/d", acls.ACCESS, acl(7, 7, 7, 7, (USER, 7, 5)))
    await bench.set_xattr("/d", acls.DEFAULT, acl(7, 7, 7, 7))
    assert await bench.xattrs("/d") == [*names, acls.ACCESS, acls.DEFAULT]
    with bench.user(5, 5):
        assert await bench.xattrs("/d") == [b"security.c", b"user.a", acls.ACCESS, acls.DEFAULT]
