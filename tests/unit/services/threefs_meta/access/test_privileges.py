"""Who writes a file takes away what it grants."""

from collections.abc import Awaitable, Callable

import pytest
from threefs_meta.ops.reserve_append import reserve
from threefs_meta.ops.sync import sync

from tests.harness.meta_harness import SESSION, MetaBench
from threefs.wire import meta_pb2 as pb


async def _sync(bench: MetaBench, inode: pb.Inode) -> None:
    request = pb.SyncRequest(mutation=bench.mutation(), inode=inode.inode, length_hint=9, written=True)
    request.caller.CopyFrom(bench.caller or pb.Caller())
    await sync(bench.context, request)


async def _append(bench: MetaBench, inode: pb.Inode) -> None:
    request = pb.ReserveRequest(mutation=bench.mutation(), inode=inode.inode, session=SESSION, length=9)
    request.caller.CopyFrom(bench.caller or pb.Caller())
    await reserve(bench.context, request)


_CHANGES: dict[str, Callable[[MetaBench, pb.Inode], Awaitable[object]]] = {
    "sync": _sync,
    "append": _append,
    "close": lambda bench, inode: bench.close(inode, SESSION, length_hint=9, written=True),
    "open": lambda bench, inode: bench.open("/a", truncate=True),
    "create": lambda bench, inode: bench.create("/a", truncate=True),
    "truncate": lambda bench, inode: bench.truncate("/a", 9),
}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("uid", [0, 1001])
async def test_the_write_of_a_user_takes_it_away(bench: MetaBench, change: str, uid: int) -> None:
    made = (await bench.create("/a", session=SESSION)).inode
    for name in (b"security.capability", b"user.a"):
        await bench.set_xattr("/a", name, b"value")
    before = await bench.set("/a", mode=0o4777)
    with bench.user(uid, uid):
        await _CHANGES[change](bench, made)
    after = await bench.stat("/a")
    if uid:
        assert after.mode == 0o777 and await bench.xattrs("/a") == [b"user.a"]
        assert after.change > before.change and after.xattr_bytes == 64 + len(b"user.avalue")
    else:
        assert after.mode == 0o4777 and await bench.xattrs("/a") == [b"security.capability", b"user.a"]
