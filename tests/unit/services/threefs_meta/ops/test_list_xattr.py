"""Listing attributes."""

from threefs_meta.access import acls

from tests.harness.meta_harness import MetaBench, run
from tests.unit.services.threefs_meta.access.test_acls import USER, acl


def test_each_sees_what_is_theirs_to_see() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/d")
        assert await fs.xattrs("/d") == []
        names = [b"security.c", b"trusted.b", b"user.a"]
        for name in names:
            await fs.set_xattr("/d", name, b"")
        await fs.set_xattr("/d", acls.ACCESS, acl(7, 7, 7, 7, (USER, 7, 5)))
        await fs.set_xattr("/d", acls.DEFAULT, acl(7, 7, 7, 7))
        assert await fs.xattrs("/d") == [*names, acls.ACCESS, acls.DEFAULT]
        with fs.user(5, 5):
            assert await fs.xattrs("/d") == [b"security.c", b"user.a", acls.ACCESS, acls.DEFAULT]

    run(test)
