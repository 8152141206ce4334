"""Damage of a metadata store, made by hand."""

from threefs_meta.store import keys

from tests.harness.meta_harness import MetaBench
from threefs.kv import records, retry
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.common_pb2 import Empty
from threefs.wire.records_pb2 import EntryRecord


async def put(bench: MetaBench, key: bytes, value: bytes | None) -> None:
    async def change(tx: Transaction) -> None:
        if value is None:
            tx.clear(key)
        else:
            tx.set(key, value)

    await retry.run(bench.engine, change, replayable=True)


async def get(bench: MetaBench, key: bytes) -> bytes | None:
    return await bench.engine.begin().get(key)


async def put_inode(bench: MetaBench, inode: pb.Inode) -> None:
    """What is shown of a directory says more than is stored."""
    if inode.type == pb.DIRECTORY:
        inode.nlink = min(inode.nlink, 1)
    await put(bench, keys.inode(inode.inode), records.encode(inode))


async def put_entry(bench: MetaBench, parent: int, name: bytes, inode: int, kind: pb.InodeType) -> None:
    await put(bench, keys.entry(parent, name), records.encode(EntryRecord(inode=inode, type=kind)))


async def put_count(bench: MetaBench, parent: int, directory: int, present: bool) -> None:
    """Whether a directory is counted among the links of another one."""
    await put(bench, keys.subdirectory(parent, directory), records.encode(Empty()) if present else None)


async def drop_entry(bench: MetaBench, parent: int, name: bytes) -> None:
    await put(bench, keys.entry(parent, name), None)


async def drop_inode(bench: MetaBench, inode: int) -> None:
    await put(bench, keys.inode(inode), None)


async def flip(bench: MetaBench, key: bytes) -> None:
    """A record that no longer matches its checksum."""
    value = await get(bench, key)
    assert value is not None
    await put(bench, key, value[:-1] + bytes([value[-1] ^ 1]))
