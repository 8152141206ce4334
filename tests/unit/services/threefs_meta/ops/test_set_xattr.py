"""Setting attributes."""

import pytest
from threefs_meta.ops.set_xattr import set_xattr
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly

from tests.harness.meta_harness import SESSION, MetaBench, at, run
from threefs.errors import AlreadyExists, InvalidArgument, NoAttribute, NotFound, PermissionDenied
from threefs.wire import meta_pb2 as pb


def test_made_and_replaced_as_asked() -> None:
    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a")).inode
        fs.clock.advance(1)
        with pytest.raises(NoAttribute):
            await fs.set_xattr("/a", b"user.a", b"1", replace=True)
        found = await fs.set_xattr("/a", b"user.a", b"1", create=True)
        assert found.ctime_ns == fs.clock.wall_ns() > found.mtime_ns == made.mtime_ns
        with pytest.raises(AlreadyExists):
            await fs.set_xattr("/a", b"user.a", b"2", create=True)
        await fs.set_xattr("/a", b"user.a", b"3", replace=True)
        await fs.set_xattr("/a", b"user.a", b"")
        assert await fs.get_xattr("/a", b"user.a") == b""
        with pytest.raises(InvalidArgument):
            await fs.set_xattr("/a", b"user.a", b"2", create=True, replace=True)
        with pytest.raises(NotFound):
            await fs.set_xattr("/b", b"user.a", b"2")
        await fs.symlink("a", "/l")
        with pytest.raises(PermissionDenied):
            await fs.set_xattr("/l", b"user.a", b"2")

    run(test)


def test_what_has_no_name_gets_attributes_only_while_it_is_open() -> None:
    """Later they could not be freed with it. The bench audits that nothing is left of them."""

    async def test(fs: MetaBench) -> None:
        made = (await fs.create("/a", session=SESSION)).inode
        await fs.remove("/a")

        async def set_on_inode(name: bytes) -> None:
            place = at("", made.inode)
            request = pb.SetXattrRequest(mutation=fs.mutation(), place=place, name=name, value=b"v")
            await set_xattr(fs.context, request)

        await set_on_inode(b"user.a")
        await fs.close(made, SESSION)
        with pytest.raises(NotFound):
            await set_on_inode(b"user.b")
        await fs.collect_all()
        begin, end = keys.xattrs(made.inode)
        assert await run_readonly(fs.context, lambda ns: ns.tx.get_range(begin, end)) == []

    run(test)
