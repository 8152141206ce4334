"""Setting quotas, and what they forbid."""

import pytest
from threefs_meta.ops.set_quota import set_quota

from tests.harness.meta_harness import SESSION, MetaBench, at, run
from threefs.errors import NotADirectory, NotFound, PermissionDenied, QuotaExceeded
from threefs.wire import meta_pb2 as pb


def test_no_more_inodes_than_the_limit() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/t")
        await fs.set_quota("/t", limit_inodes=3)
        await fs.count_all()
        await fs.create("/t/1")
        await fs.symlink("x", "/t/2")
        await fs.count_all()
        for make in (fs.create, fs.mkdir):
            with pytest.raises(QuotaExceeded):
                await make("/t/3")
        await fs.create("/outside")
        await fs.remove("/t/1")
        await fs.count_all()
        await fs.create("/t/3")

    run(test)


def test_files_do_not_grow_beyond_the_limit() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.mkdir("/t")
        await fs.set_quota("/t", limit_bytes=100)
        await fs.count_all()
        made = await fs.create("/t/a", session=SESSION)
        assert not made.over_quota
        with pytest.raises(QuotaExceeded):
            await fs.truncate("/t/a", 101)
        await fs.truncate("/t/a", 50)
        closed = await fs.close(made.inode, SESSION, length_hint=120, written=True, truncate_version=1)
        assert closed.length == 120, "what was written is not taken away: that is the overshoot"
        await fs.count_all()
        again = await fs.create("/t/b", session=SESSION)
        assert again.over_quota, "an empty one may be made"
        await fs.close(again.inode, SESSION)
        with pytest.raises(QuotaExceeded):
            await fs.truncate("/t/b", 1)
        await fs.truncate("/t/a", 10)

    run(test)


def test_who_and_what_is_refused() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.create("/file")
        with pytest.raises(NotADirectory):
            await fs.set_quota("/file")
        with pytest.raises(NotFound):
            await fs.set_quota("/none")
        request = pb.SetQuotaRequest(mutation=fs.mutation(), place=at("/"), caller=pb.Caller(uid=7))
        with pytest.raises(PermissionDenied):
            await set_quota(fs.context, request)

    run(test)


def test_a_limit_is_changed_in_place() -> None:
    async def test(fs: MetaBench) -> None:
        await fs.set_quota("/", limit_inodes=5)
        await fs.set_quota("/", limit_inodes=9, limit_bytes=4)
        await fs.count_all()
        quota = await fs.quota("/")
        assert quota is not None and (quota.limit_inodes, quota.limit_bytes, quota.used_inodes) == (9, 4, 1)

    run(test)
