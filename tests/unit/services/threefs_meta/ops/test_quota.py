"""Setting quotas, and what they forbid."""

import pytest
from threefs_meta.ops.quota import list_quotas, set_quota, show_quota

from tests.harness.meta_harness import SESSION, MetaBench, at
from threefs.errors import NotADirectory, NotFound, PermissionDenied, QuotaExceeded
from threefs.wire import meta_pb2 as pb


async def test_no_more_inodes_than_the_limit(bench: MetaBench) -> None:
    await bench.mkdir("/t")
    await bench.set_quota("/t", limit_inodes=3)
    await bench.count_all()
    await bench.create("/t/1")
    await bench.symlink("x", "/t/2")
    await bench.count_all()
    for make in (bench.create, bench.mkdir):
        with pytest.raises(QuotaExceeded):
            await make("/t/3")
    await bench.create("/outside")
    await bench.remove("/t/1")
    await bench.count_all()
    await bench.create("/t/3")


async def test_files_do_not_grow_beyond_the_limit(bench: MetaBench) -> None:
    await bench.mkdir("/t")
    await bench.set_quota("/t", limit_bytes=100)
    await bench.count_all()
    made = await bench.create("/t/a", session=SESSION)
    assert not made.over_quota
    with pytest.raises(QuotaExceeded):
        await bench.truncate("/t/a", 101)
    await bench.truncate("/t/a", 50)
    closed = await bench.close(made.inode, SESSION, length_hint=120, written=True, truncate_version=1)
    assert closed.length == 120, "what was written is not taken away: that is the overshoot"
    await bench.count_all()
    again = await bench.create("/t/b", session=SESSION)
    assert again.over_quota, "an empty one may be made"
    await bench.close(again.inode, SESSION)
    with pytest.raises(QuotaExceeded):
        await bench.truncate("/t/b", 1)
    await bench.truncate("/t/a", 10)


async def test_a_limit_that_stays_is_the_one_that_was_set_last(bench: MetaBench) -> None:
    """Two administrators set one limit each, and both had read what was there before."""
    await bench.mkdir("/t")
    first = await bench.set_quota("/t", limit_bytes=100, keep_inodes=True)
    second = await bench.set_quota("/t", limit_inodes=3, keep_bytes=True)
    assert (first.limit_bytes, first.limit_inodes) == (100, 0)
    assert (second.limit_bytes, second.limit_inodes) == (100, 3)
    await bench.set_quota("/t", clear=True)
    third = await bench.set_quota("/t", limit_inodes=4, keep_bytes=True)
    assert (third.limit_bytes, third.limit_inodes) == (0, 4)


async def test_invalid_callers_and_requests_are_refused(bench: MetaBench) -> None:
    await bench.create("/file")
    with pytest.raises(NotADirectory):
        await bench.set_quota("/file")
    with pytest.raises(NotFound):
        await bench.set_quota("/none")
    request = pb.SetQuotaRequest(mutation=bench.mutation(), place=at("/"), caller=pb.Caller(uid=7))
    with pytest.raises(PermissionDenied):
        await set_quota(bench.context, request)


async def test_a_limit_is_changed_in_place(bench: MetaBench) -> None:
    await bench.set_quota("/", limit_inodes=5)
    await bench.set_quota("/", limit_inodes=9, limit_bytes=4)
    await bench.count_all()
    quota = await bench.quota("/")
    assert quota is not None and (quota.limit_inodes, quota.limit_bytes, quota.used_inodes) == (9, 4, 1)


async def test_all_are_listed_with_their_paths(bench: MetaBench) -> None:
    await bench.mkdir("/a/b", parents=True)
    await bench.set_quota("/a/b", limit_bytes=1)
    await bench.set_quota("/", limit_bytes=2)
    await bench.set_quota(uid=5, limit_inodes=3)
    await bench.count_all()
    reply = await list_quotas(bench.context, pb.ListQuotasRequest())
    assert sorted((quota.path, quota.uid, quota.limit_bytes) for quota in reply.quotas) == [
        (b"", 5, 0),
        (b"/", 0, 2),
        (b"/a/b", 0, 1),
    ]
    assert not reply.next and not any(quota.counting for quota in reply.quotas)


async def test_users_see_their_own(bench: MetaBench) -> None:
    await bench.set_quota(uid=5, limit_inodes=3)
    mine = pb.ShowQuotaRequest(uid=5, caller=pb.Caller(uid=5))
    assert (await show_quota(bench.context, mine)).quota.limit_inodes == 3
    with pytest.raises(PermissionDenied):
        await show_quota(bench.context, pb.ShowQuotaRequest(uid=5, caller=pb.Caller(uid=6)))
    with pytest.raises(PermissionDenied):
        await list_quotas(bench.context, pb.ListQuotasRequest(caller=pb.Caller(uid=5)))
    assert not (await show_quota(bench.context, pb.ShowQuotaRequest(place=at("/")))).HasField("quota")
