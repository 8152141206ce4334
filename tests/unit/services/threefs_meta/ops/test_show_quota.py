"""Quotas as they are shown."""

import pytest
from threefs_meta.ops.show_quota import list_quotas, show_quota

from tests.harness.meta_harness import MetaBench, at
from threefs.errors import PermissionDenied
from threefs.wire import meta_pb2 as pb


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
