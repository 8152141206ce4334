"""Quotas in the client: what is asked, and what is understood."""

from typing import Any, cast

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.metadata.quotas import Quota, Quotas

from tests.harness.memory_cluster import MemoryFiles
from threefs.errors import InvalidArgument, QuotaExceeded
from threefs.wire import meta_pb2 as pb


class Tree:
    """Answers with what it is given."""

    def __init__(self, *replies: Any) -> None:
        self.context = MemoryFiles().context
        self.replies = list(replies)
        self.requests: list[Any] = []

    async def _call(self, method: Any, request: Any) -> Any:
        self.requests.append(request)
        return self.replies.pop(0)


async def test_a_directory_or_a_user_is_named() -> None:
    tree = Tree(pb.QuotaReply(), pb.QuotaReply(), pb.QuotaReply(quota=pb.Quota(uid=5, used_bytes=3)))
    quotas = Quotas(cast(Any, tree))
    await quotas.set("/a", limit_bytes=7)
    await quotas.clear(uid=5)
    assert await quotas.show(uid=5) == Quota(None, 5, 0, 0, 3, 0, False)
    first, second, _ = tree.requests
    assert (first.place.path, first.limit_bytes, first.HasField("uid"), first.clear) == (b"/a", 7, False, False)
    assert (second.uid, second.clear) == (5, True) and first.mutation != second.mutation
    for wrong in ({}, {"path": "/a", "uid": 5}, {"uid": -1}, {"path": "/a", "limit_bytes": -1}):
        with pytest.raises(InvalidArgument):
            await quotas.set(**wrong)


async def test_a_service_that_keeps_no_limit_is_told_what_it_was() -> None:
    own, above = pb.Quota(tree=7, limit_bytes=5, limit_inodes=3), pb.Quota(tree=1, limit_bytes=9)
    stat = pb.InodeReply(inode=pb.Inode(inode=7))
    tree = Tree(pb.QuotaReply(quota=own), stat, pb.QuotaReply(), pb.QuotaReply(quota=above), stat, pb.QuotaReply())
    quotas = Quotas(cast(Any, tree))
    await quotas.set("/a", limit_bytes=None, limit_inodes=4)
    await quotas.set("/a", limit_bytes=6, limit_inodes=None)
    first, second = tree.requests[2], tree.requests[5]
    assert (first.limit_bytes, first.keep_bytes, first.limit_inodes, first.keep_inodes) == (5, True, 4, False)
    assert (second.limit_bytes, second.keep_bytes, second.limit_inodes, second.keep_inodes) == (6, False, 0, True)


async def test_all_are_listed_in_pages() -> None:
    one = pb.Quota(tree=7, path=b"/a", limit_inodes=3)
    tree = Tree(pb.ListQuotasReply(quotas=[one], next=b"n"), pb.ListQuotasReply(quotas=[pb.Quota(uid=1)]))
    found = await Quotas(cast(Any, tree)).list()
    assert [(quota.path, quota.uid) for quota in found] == [("/a", None), (None, 1)]
    assert [request.after for request in tree.requests] == [b"", b"n"]


async def test_a_file_does_not_grow_once_the_quota_is_used_up() -> None:
    files = MemoryFiles()
    fs = AsyncFileSystem(files.context)
    async with await fs.open("/a", "w+b") as file:
        await file.write(b"before")
        await file.flush()
        file.handle.over_quota = files.meta.over_quota = True
        with pytest.raises(QuotaExceeded):
            await file.handle.write(6, memoryview(b"more"))
        with pytest.raises(QuotaExceeded, match="/a cannot become longer"):
            await file.write(b"more")
        with pytest.raises(QuotaExceeded):
            await fs.write_batch([(file, 6, b"more")])
        await file.handle.write(0, memoryview(b"BEFORE"))
        files.meta.over_quota = False  # something was removed
        await file.write(b" and after")
    assert await fs.read_file("/a") == b"BEFORE and after"
