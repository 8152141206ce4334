"""Many changes ask a store that is far away a few times only."""

from collections.abc import Sequence

from threefs_meta.access.credentials import TRUSTED
from threefs_meta.batch.prefetch_reads import prefetch
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.ops.close import close_transaction
from threefs_meta.ops.create import create_transaction
from threefs_meta.ops.remove import remove_transaction
from threefs_meta.store.namespace import Namespace

from tests.harness.meta_harness import CLIENT, MetaBench, at
from threefs.kv.remote_transaction import RemoteTransaction, Row
from threefs.wire import meta_pb2 as pb


class Shelf:
    """A far store that counts how often it is asked."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._rows = {key: (key, value, 1) for key, value in pairs}
        self.asked = 0

    async def fetch(self, keys: Sequence[bytes]) -> list[Row]:
        self.asked += 1
        return [self._rows[key] for key in keys if key in self._rows]

    async def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]:
        self.asked += 1
        rows = sorted((row for key, row in self._rows.items() if begin <= key < end), reverse=reverse)
        return rows[:limit] if limit else rows

    async def commit(self, attempt: RemoteTransaction) -> None: ...

    async def confirm(self, attempt: RemoteTransaction) -> None: ...


async def test_the_store_is_asked_for_all_at_once(bench: MetaBench) -> None:

    async def work(fs: MetaBench, ns: Namespace, change: pb.Change) -> None:
        if change.HasField("create"):
            await create_transaction(fs.context, change.create, TRUSTED, CLIENT)(ns)
        elif change.HasField("remove"):
            await remove_transaction(fs.context, change.remove, TRUSTED)(ns)
        else:
            await close_transaction(fs.context, change.close, TRUSTED)(ns)

    await bench.mkdir("/d/e", parents=True)
    changes = [pb.Change(create=pb.CreateRequest(place=at(f"/d/e/new-{n}"))) for n in range(20)]
    for n in range(20):
        file = (await bench.create(f"/d/{n}", session=bytes([n]) * 16)).inode
        changes.append(pb.Change(remove=pb.RemoveRequest(place=at(f"/d/{n}"))))
        close = pb.CloseRequest(inode=file.inode, session=bytes([n]) * 16, length_hint=3)
        changes.append(pb.Change(close=close))
    odd = [at("/none/x"), at(""), at("/d/.."), at(b"\0"), at("/d/0/x"), at("x", base=77)]
    changes += [pb.Change(remove=pb.RemoveRequest(place=place)) for place in odd]
    shelf = Shelf(await bench.engine.begin().get_range(b"", b"\xff"))
    tx = RemoteTransaction(shelf, shelf, bench.clock)
    ns = bench.context.namespace(tx, TxnMemo())
    await prefetch(ns, TRUSTED, changes)
    seen = shelf.asked
    assert seen < 20
    for change in changes[:-6]:
        await work(bench, ns, change)
    assert shelf.asked - seen < 10
